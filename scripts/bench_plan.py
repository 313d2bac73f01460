"""Planned and measured memory of CPU runs: python scripts/bench_plan.py --size 5m --processes 1.

One JSON line for each size and number of processes on stdout. Every run is a fresh process of `mmrl fit`; measured is
the peak of resident memory (VmHWM) minus the resident memory just before the policy is built, of the largest process.

  measured, planned   bytes; planned is the largest sum of a phase of `mmrl plan`
  ratio               measured / planned
  before              resident memory before the policy is built: the imports
  tokens_mean         completion length of the last iteration; the plan takes the longest
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmark.process import versions

FOLDER = Path(__file__).parent / "benchmark"
COMMON = (
    *("recipe=grpo", "capture=false", "trainer.max_epochs=3", "trainer.check_val_every_n_epoch=3"),
    *("trainer.callbacks.warm_start.stages=null", "data.transforms=null", "data.evaluation=null"),
    *("data.num_prompts=8", "data.group_size=4", "data.num_minibatches=1", "trainer.accelerator=cpu"),
)
SIZES = {
    "5m": ("policy=tiny_text", *(f"policy.config.{key}" for key in ("hidden_size=256", "intermediate_size=1024"))),
    "30m": ("policy=tiny_text", *(f"policy.config.{key}" for key in ("hidden_size=512", "intermediate_size=2048"))),
    "135m": ("policy=smollm2",),
}
LAYERS = {"5m": ("policy.config.num_hidden_layers=5",), "30m": ("policy.config.num_hidden_layers=7",), "135m": ()}


def bench(size: str, processes: int, more: list[str]) -> dict[str, Any]:
    """Plan one run, then train it."""
    changed = {word.partition("=")[0] for word in more}
    words = [word for word in (*COMMON, *SIZES[size], *LAYERS[size]) if word.partition("=")[0] not in changed]
    words += more
    if processes > 1:
        words += [f"trainer.devices={processes}", "trainer.strategy=ddp"]
    environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    with tempfile.TemporaryDirectory() as temporary:
        output = run([sys.executable, "-m", "mmrl", "plan", *words, "--json"], environment)
        planned = json.loads(output[output.index("{") :])
        file = Path(temporary) / "memory"
        script = [sys.executable, str(FOLDER / "fit_memory.py"), str(file)]
        run([*script, *words, f"run_dir={temporary}/run"], environment)
        ranks = [json.loads(Path(f"{file}.{rank}").read_text()) for rank in range(processes)]
    measured = [each["peak"] - each["before"] for each in ranks]
    expected = max(rank["peak"] for rank in planned["ranks"])
    return {
        "size": size,
        "parameters": planned["policy"]["parameters"],
        "processes": processes,
        "measured": max(measured),
        "planned": expected,
        "ratio": round(max(measured) / expected, 3),
        "before": max(each["before"] for each in ranks),
        "tokens_mean": ranks[0]["metrics"].get("rollout/tokens_mean"),
        "ranks": measured,
        "phases": planned["ranks"][0]["phases"],
        "words": more,
        "versions": versions("torch", "lightning", "transformers"),
    }


def run(command: list[str], environment: dict[str, str]) -> str:
    """Run a command and return its output; its errors are shown if it fails."""
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, action="append", help="may be repeated; default: all")
    parser.add_argument("--processes", type=int, action="append", help="may be repeated; default: 1 and 2")
    parser.add_argument("words", nargs="*", help="further words of `mmrl fit`, for the plan and the run")
    options = parser.parse_args()
    for size in options.size or SIZES:
        for processes in options.processes or (1, 2):
            print(json.dumps(bench(size, processes, options.words)), flush=True)


if __name__ == "__main__":
    main()
