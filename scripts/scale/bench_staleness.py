"""How long learner and servers wait for each other: python scripts/scale/bench_staleness.py --staleness 0 1 2.

Each run trains a small text policy in one process, which a pool of vLLM servers samples, and prints one JSON line:
  iteration       seconds of an iteration
  learner_idle    share of it in which the learner waits for rows: it collects (staleness 0), or waits for the thread
  servers_idle    share of it in which no server has a prompt
  staleness       versions between the weights that sampled a row and those that learn from it
Figures are medians over the iterations of all rounds, without those in which the pipeline fills. The runs of a round
take turns. `load` is the system's load average at the beginning and at the end: other programs make seconds worthless,
and shares less so. With fewer cores than processes, servers and learner share cores, and what overlaps is slower.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parent.parent.parent
COLLECTION = ("time/sync", "time/rollout", "time/score")
SIZES = (
    *("recipe=grpo_async", "setting=sums", "policy.config.hidden_size=128", "policy.config.num_hidden_layers=4"),
    *("data.evaluation=null", "data.num_minibatches=4", "trainer.callbacks.warm_start.stages=null"),
    *("trainer.accelerator=cpu", "trainer.callbacks.progress=null", "data.max_empty_iterations=1000"),
    "data.reward={_target_: mmrl.rewards.compose.OverlongPenalty, max_tokens: 8}",
)


def run(folder: Path, staleness: int, options: argparse.Namespace) -> list[dict[str, float]]:
    """Train and return the metrics of every iteration in which the pipeline is full."""
    servers = ("engine=vllm_server", f"engine.servers={options.servers}", f"engine.python={options.python}")
    sizes = (f"data.num_prompts={options.prompts}", f"data.group_size={options.group_size}")
    words = [
        *SIZES,
        *(servers if options.engine == "vllm_server" else ()),
        *sizes,
        f"data.sampling.max_tokens={options.max_tokens}",
        f"trainer.max_epochs={options.iterations + staleness + 1}",
        f"data.staleness={staleness}",
        f"run_dir={folder}",
        *options.more,
    ]
    command = [sys.executable, "-m", "mmrl", "fit", *words]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    with next(folder.rglob("metrics.csv")).open() as file:
        rows = [{name: float(value) for name, value in row.items() if value} for row in csv.DictReader(file)]
    return [row for row in rows if "time/rollout" in row][staleness + 1 :]


def shares(metrics: dict[str, float]) -> dict[str, float]:
    """Return the seconds and idle shares of one iteration."""
    seconds = metrics["time/iteration"]
    waiting = metrics.get("time/wait", sum(metrics.get(name, 0.0) for name in COLLECTION))
    sampling = metrics.get("time/generate", metrics["time/rollout"])
    return {
        "iteration": seconds,
        "learner_idle": waiting / seconds,
        "servers_idle": 1 - min(sampling / seconds, 1.0),
        "staleness": metrics.get("rollout/staleness", 0.0),
    }


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--staleness", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=6, help="of a run, that count")
    parser.add_argument("--engine", choices=("vllm_server", "local"), default="vllm_server")
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--python", default=str(ROOT / ".venv-vllm/bin/python"), help="of an environment with vLLM")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--more", nargs="*", default=[], help="further overrides, such as rollout=partial")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    measured: dict[int, list[dict[str, float]]] = {staleness: [] for staleness in options.staleness}
    first = os.getloadavg()[0]
    for _ in range(options.rounds):
        for staleness, rows in measured.items():
            with tempfile.TemporaryDirectory() as folder:
                rows += map(shares, run(Path(folder) / "run", staleness, options))
    load = [round(first, 1), round(os.getloadavg()[0], 1)]
    for staleness, rows in measured.items():
        figures = {name: round(median(row[name] for row in rows), 3) for name in rows[0]}
        print(json.dumps({"data.staleness": staleness, **figures, "iterations": len(rows), "load": load}))


if __name__ == "__main__":
    main()
