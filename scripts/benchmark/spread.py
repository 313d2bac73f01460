"""Speed of a simulator in this process beside that of its environments in other processes."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmark.sim import rates
from sims.workers import WorkerSim


class Played:
    """A vector environment with random actions; ended environments are reset at once with new seeds."""

    def __init__(self, env: Any):
        self.env, self.decisions, self._turn = env, 0, 0
        low, high = env.action_space.low, env.action_space.high
        rng = np.random.default_rng(0)
        self._actions = [rng.uniform(low, high).astype(low.dtype) for _ in range(64)]
        self._seeds = iter(range(10**9))
        env.reset(seed=[next(self._seeds) for _ in range(env.num_envs)])

    def decide(self) -> None:
        """One decision of all environments."""
        self._turn = (self._turn + 1) % len(self._actions)
        _, _, terminated, truncated, _ = self.env.step(self._actions[self._turn])
        self.decisions += self.env.num_envs
        over = terminated | truncated
        if over.any():
            seeds = [next(self._seeds) for _ in range(self.env.num_envs)]
            self.env.reset(seed=seeds, options={"reset_mask": over})


def compare_processes(sim: Any, num_envs: int, counts: list[int], seconds: float) -> dict[str, float]:
    """Median decisions per second in this process and in so many others, measured in turn, and their ratios."""
    sides = {"in_process": Played(sim.make(num_envs))}
    sides |= {f"workers_{count}": Played(WorkerSim(sim, count).make(num_envs)) for count in counts}
    measured, _ = rates(
        {name: (side.decide, lambda side=side: side.decisions) for name, side in sides.items()}, seconds
    )
    for side in sides.values():
        side.env.close()
    out = {f"{name}_decisions_per_second": round(rate, 1) for name, rate in measured.items()}
    first = measured["in_process"]
    return out | {f"{name}_ratio": round(rate / first, 3) for name, rate in measured.items() if name != "in_process"}
