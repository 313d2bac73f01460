"""Fine-tune a small vision-language-action policy in simulation: what `make demo` runs.

A policy with random weights learns to point at named objects, clones ten scripted demonstrations, and is then
fine-tuned from nothing but "touched the named cube or not". The start and the end meet the same 512 initial states,
which no stage was trained on.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

from mmrl.__main__ import main as mmrl

STATES = 512


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run-dir", type=Path, default=Path("runs/demo"))
    parser.add_argument("words", nargs="*", help="further words of `mmrl fit`")
    options = parser.parse_args()
    folder, started = options.run_dir, time.perf_counter()
    if folder.exists():
        shutil.move(folder, folder.with_name(f"{folder.name}-{time.strftime('%Y%m%d-%H%M%S')}"))
    fit = ["fit", "recipe=demo_vla", f"seed={options.seed}", f"run_dir={folder}", *options.words]
    status = mmrl(fit) or mmrl(["evaluate", str(folder), "compare=start", f"count={STATES}", "video=true"])
    if status == 0:
        minutes = (time.perf_counter() - started) / 60
        print(f"\n{minutes:.1f} minutes. Learning curve, videos, metrics, checkpoints and configuration: {folder}/")
    return status


if __name__ == "__main__":
    sys.exit(main())
