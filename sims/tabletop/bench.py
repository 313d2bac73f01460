"""Benchmark the tasks: `python -m sims.tabletop.bench [task ...] [--level easy] [--speed]`.

Per task and level: success of random actions and of the scripted expert on states that nothing was tuned on, with
Wilson 95 % intervals, and how many decisions the expert needs. `--speed` adds rates of this machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from sims.tabletop.experts import expert
from sims.tabletop.suite import PARTS
from sims.tabletop.vector import TabletopVectorEnv

_FIRST = 700_000  # of the seeds
_ENVS = 64


def wilson(successes: int, count: int) -> tuple[float, float]:
    """Wilson 95 % interval of a success rate. Source: Wilson, "Probable inference", 1927, equation 6."""
    z, p = 1.959964, successes / count
    middle = (p + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * np.sqrt(p * (1 - p) / count + z**2 / (4 * count**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def play(env: TabletopVectorEnv, act: Callable[[TabletopVectorEnv], np.ndarray]) -> np.ndarray:
    """Play all environments to their ends; returns the control steps of each, int [n]."""
    env.reset(seed=list(range(_FIRST, _FIRST + env.num_envs)))
    steps = np.zeros(env.num_envs, np.int64)
    while env.live.any():
        steps += env.step(act(env))[-1]["executed"]
    return steps


def record(task: str, level: Any, count: int, threads: int) -> str:
    """One table row: success rates of random actions and of the expert."""
    env = PARTS[task](level=level, threads=threads, image_size=4).make(count)
    rng = np.random.default_rng(0)
    play(env, lambda env: rng.uniform(-1, 1, (count, env.chunk, env.action_dims)))
    chance = env.scores["success"].mean()
    steps = play(env, expert)
    done = env.scores["success"] > 0
    low, high = wilson(int(done.sum()), count)
    needed = env.decisions[done]
    others = ", ".join(f"{name} {int(env.scores[name].sum())}" for name in env.task.events[1:])
    return (
        f"| {task} | {level} | {chance:.1%} | {done.mean():.1%} [{low:.1%}, {high:.1%}] | {np.median(needed):.0f} / "
        f"{np.percentile(needed, 90):.0f} of {env.table.max_decisions} | {steps.mean():.1f} | {others}, "
        f"errors {int(env.error.sum())} |"
    )


def rate(work: Callable[[], object], amount: int, repeats: int = 10) -> float:
    """Units of work per second, the median of some repeats."""
    work()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return amount / float(np.median(seconds))


def speed(task: str, level: Any, threads: int) -> str:
    """One table row: control steps and frames per second at the initial states."""
    env = PARTS[task](level=level, threads=threads).make(_ENVS)
    env.reset(seed=list(range(_ENVS)))
    ids, still = np.arange(_ENVS), np.zeros((_ENVS, env.action_dims))
    controls = rate(lambda: env.physics.control(ids, still), _ENVS)
    frames = rate(partial(env.renderer.frames, env.physics.kinematics.batch, ids, "front", 64), _ENVS, repeats=5)
    return (
        f"| {task} | {level} | {env.physics.model.nv} | {controls:.0f} control steps/s | {frames:.0f} frames/s, 64 px "
        f"({env.renderer_name}, {threads} thread(s)) |"
    )


def main() -> None:
    """Benchmark the tasks that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*", help=f"of {', '.join(PARTS)}; none: all")
    parser.add_argument("--level", nargs="+", default=["easy", "default", "hard"])
    parser.add_argument("--count", type=int, default=512, help="initial states of each")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--speed", action="store_true", help="rates instead of successes")
    words = parser.parse_args()
    if unknown := sorted(set(words.tasks) - set(PARTS)):
        parser.error(f"unknown tasks {unknown}; known are {sorted(PARTS)}")
    for task in words.tasks or PARTS:
        for level in words.level:
            line = speed(task, level, words.threads) if words.speed else record(task, level, words.count, words.threads)
            print(line, flush=True)


if __name__ == "__main__":
    main()
