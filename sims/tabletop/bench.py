"""Measure the reach task here: `python -m sims.tabletop.bench [threads]` prints rates and the expert's record."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from sims.tabletop.expert import expert
from sims.tabletop.sim import Reach

_WORLDS, _EPISODES = 64, 512


def rate(work: Callable[[], object], amount: int, repeats: int = 10) -> float:
    """Units of work per second, the median of some repeats."""
    work()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return amount / float(np.median(seconds))


def main(threads: int) -> None:
    """Measure on this machine: control steps, frames, and how the scripted expert does."""
    env = Reach(threads=threads).make(_WORLDS)
    env.reset(seed=list(range(_WORLDS)))
    ids, still = np.arange(_WORLDS), np.zeros((_WORLDS, 3))
    worlds, renderer = env.worlds, env.renderer
    print(f"{rate(lambda: worlds.control(ids, still), _WORLDS):8.0f} control steps/s, {threads} thread(s)")
    for size in (64, 128, 224):
        frames = rate(partial(renderer.frames, worlds.batch, ids, "front", size), _WORLDS, repeats=3)
        print(f"{frames:8.0f} frames/s at {size} px ({renderer.name})")
    print(f"{rate(lambda: env.render(0, 256), 1):8.1f} pictures for people/s at 256 px")
    env = Reach(threads=threads, image_size=8).make(_EPISODES)
    env.reset(seed=list(range(_EPISODES)))
    steps = np.zeros(_EPISODES)
    while env.live.any():
        infos = env.step(expert(env))[-1]
        steps += infos["executed"]
    success, decisions = int(infos["scores"]["success"].sum()), env.decisions.mean()
    print(f"expert: {success}/{_EPISODES}, {steps.mean():.1f} control steps and {decisions:.2f} decisions on average")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
