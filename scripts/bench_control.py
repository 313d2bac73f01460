"""Compare decisions per second of control recipes with Stable-Baselines3.

  python scripts/bench_control.py --env CartPole-v1 --algorithm ppo --steps 50000 --peer sb3

One JSON line on stdout, everything else on stderr. Both sides have the same hyperparameters, networks, environments and
threads (scripts/benchmark/<algorithm>.py). Each run is a process of its own; with a peer the two run in turn, and the
figures are medians over the rounds. `ratio` is our decisions per second over the peer's.

  env_steps_per_second  decisions / seconds, from the start of training to its end: simulator, policy and learning
  final_return          mean undiscounted return of the last training episodes, 100 of them or --last
  seconds, cpu_seconds  of the whole run, without starting Python and importing
  phases                seconds of an iteration's parts, as each side tells them apart

With --seeds every round has a seed of its own, the same on both sides, and the returns can be compared:

  returns, return_interval  final_return of every seed, and the Student 95 % interval of their mean
  return_within_peers       whether our mean lies in the peer's interval
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from benchmark.command import child
from benchmark.control import ALGORITHMS, summary
from benchmark.process import versions

from mmrl.experiments.effect import student_interval


def options(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--env", default="CartPole-v1", help="one that the algorithm has numbers for")
    add("--algorithm", choices=sorted(ALGORITHMS), default="ppo")
    add("--steps", type=int, default=50_000, help="decisions; rounded up to whole iterations")
    add("--seed", type=int, default=0)
    add("--seeds", type=int, nargs="+", help="a round of each; in place of --seed and --rounds")
    add("--last", type=int, default=100, help="training episodes that final_return is the mean of")
    add("--peer", choices=("sb3",), help="run Stable-Baselines3 in turn")
    add("--peer-python", default=sys.executable, help="an interpreter that has Stable-Baselines3")
    add("--rounds", type=int, help="processes of each side; 3 with a peer, else 1")
    add("--threads", type=int, default=1, help="OMP_NUM_THREADS of all processes")
    add("--word", action="append", default=[], help="further word of `mmrl fit`")
    arguments = parser.parse_args(words)
    environments = sorted(ALGORITHMS[arguments.algorithm].NUMBERS)
    if arguments.env not in environments:
        raise SystemExit(f"--env {arguments.env}: --algorithm {arguments.algorithm} has numbers for {environments}")
    return arguments


def bench(chosen: argparse.Namespace) -> dict[str, Any]:
    """Run all rounds of both sides."""
    seeds = chosen.seeds or [chosen.seed] * (chosen.rounds or (3 if chosen.peer else 1))
    settings = {name: getattr(chosen, name) for name in ("env", "algorithm", "steps", "last")}
    ours: list[dict[str, Any]] = []
    peers: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)

        def run(python: str, module: str, seed: int) -> dict[str, Any]:
            request, result = folder / "asked.json", folder / "result.json"
            request.write_text(json.dumps(settings | {"seed": seed, "words": chosen.word}))
            child(python, module, chosen.threads, request, result)
            out = json.loads(result.read_text())
            text = f"{out['env_steps_per_second']:.0f} decisions/s, return {out['final_return']:.1f}"
            print(f"{module}: {text}, {out['phases']}", file=sys.stderr)
            return out

        for seed in seeds:
            ours.append(run(sys.executable, "benchmark.control", seed))
            if chosen.peer:
                peers.append(run(chosen.peer_python, "benchmark.stable", seed))
    out = (
        settings
        | {"seeds": seeds}
        | summary(ours)
        | {"phases": ours[-1]["phases"], "threads": chosen.threads, "words": chosen.word}
    )
    out |= {"numbers": ALGORITHMS[chosen.algorithm].NUMBERS[chosen.env]}
    out |= {"versions": versions("mmrl", "torch", "lightning", "gymnasium", "mujoco")}
    if peers:
        theirs = summary(peers) | {"phases": peers[-1]["phases"], "versions": peers[-1]["versions"]}
        out |= {f"peer_{name}": value for name, value in theirs.items()}
        out["ratio"] = out["env_steps_per_second"] / out["peer_env_steps_per_second"]
        out["cpu_ratio"] = out["peer_cpu_seconds"] / out["cpu_seconds"]
        out["cpu_ratios"] = [b["cpu_seconds"] / a["cpu_seconds"] for a, b in zip(ours, peers)]
    return out | (compare(ours, peers) if chosen.seeds else {})


def compare(ours: list[dict[str, Any]], peers: list[dict[str, Any]]) -> dict[str, Any]:
    """Compare the returns over the seeds."""
    out: dict[str, Any] = {}
    for prefix, runs in (("", ours), ("peer_", peers)):
        returns = [run["final_return"] for run in runs]
        if runs:
            out |= {f"{prefix}returns": returns, f"{prefix}return_mean": mean(returns)}
        if len(runs) > 1:
            out[f"{prefix}return_interval"] = student_interval(returns)
    if "peer_return_interval" in out:
        low, high = out["peer_return_interval"]
        out["return_within_peers"] = low <= out["return_mean"] <= high
    return out


def main() -> None:
    print(json.dumps(bench(options())), flush=True)


if __name__ == "__main__":
    main()
