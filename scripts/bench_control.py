"""Decisions per second of control in a simulator, and the same run by Stable-Baselines3.

  python scripts/bench_control.py --env CartPole-v1 --algorithm ppo --steps 50000 --peer sb3

One JSON line on stdout, everything else on stderr. Both sides have the same hyperparameters, networks, worlds and
threads (scripts/benchmark/<algorithm>.py). Each run is a process of its own; with a peer the two run in turn, and the
figures are medians over the rounds. `ratio` is our decisions per second over the peer's.

  env_steps_per_second  decisions / seconds, from the start of training to its end: simulator, policy and learning
  final_return          mean undiscounted return of the last 100 training episodes
  seconds, cpu_seconds  of the whole run, without starting Python and importing
  phases                seconds of an iteration's parts, as each side tells them apart
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmark.command import child
from benchmark.control import ALGORITHMS, summary
from benchmark.process import versions


def options(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--env", default="CartPole-v1", help="one that the algorithm has numbers for")
    add("--algorithm", choices=sorted(ALGORITHMS), default="ppo")
    add("--steps", type=int, default=50_000, help="decisions; rounded up to whole iterations")
    add("--seed", type=int, default=0)
    add("--peer", choices=("sb3",), help="run Stable-Baselines3 in turn")
    add("--peer-python", default=sys.executable, help="an interpreter that has Stable-Baselines3")
    add("--rounds", type=int, help="processes of each side; 3 with a peer, else 1")
    add("--threads", type=int, default=1, help="OMP_NUM_THREADS of all processes")
    add("--word", action="append", default=[], help="further word of `mmrl fit`")
    chosen = parser.parse_args(words)
    known = sorted(ALGORITHMS[chosen.algorithm].NUMBERS)
    if chosen.env not in known:
        raise SystemExit(f"--env {chosen.env}: --algorithm {chosen.algorithm} has numbers for {known}")
    return chosen


def bench(chosen: argparse.Namespace) -> dict[str, Any]:
    """All rounds of both sides."""
    asked = {name: getattr(chosen, name) for name in ("env", "algorithm", "steps", "seed")}
    ours: list[dict[str, Any]] = []
    peers: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)

        def run(python: str, module: str) -> dict[str, Any]:
            request, result = folder / "asked.json", folder / "result.json"
            request.write_text(json.dumps(asked | {"words": chosen.word}))
            child(python, module, chosen.threads, request, result)
            out = json.loads(result.read_text())
            shown = f"{out['env_steps_per_second']:.0f} decisions/s, return {out['final_return']:.1f}"
            print(f"{module}: {shown}, {out['phases']}", file=sys.stderr)
            return out

        for _ in range(chosen.rounds or (3 if chosen.peer else 1)):
            ours.append(run(sys.executable, "benchmark.control"))
            if chosen.peer:
                peers.append(run(chosen.peer_python, "benchmark.stable"))
    out = asked | summary(ours) | {"phases": ours[-1]["phases"], "threads": chosen.threads, "words": chosen.word}
    out |= {"numbers": ALGORITHMS[chosen.algorithm].NUMBERS[chosen.env]}
    out |= {"versions": versions("mmrl", "torch", "lightning", "gymnasium", "mujoco")}
    if peers:
        theirs = summary(peers) | {"phases": peers[-1]["phases"], "versions": peers[-1]["versions"]}
        out |= {f"peer_{name}": value for name, value in theirs.items()}
        out["ratio"] = out["env_steps_per_second"] / out["peer_env_steps_per_second"]
        out["cpu_ratio"] = out["peer_cpu_seconds"] / out["cpu_seconds"]
    return out


def main() -> None:
    print(json.dumps(bench(options())), flush=True)


if __name__ == "__main__":
    main()
