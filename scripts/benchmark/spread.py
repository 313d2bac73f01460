"""Speed of a simulator in one process alone beside that of its environments in other processes."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import sims
from benchmark.sim import rates
from sims.workers import WorkerSim
from sims.workers.guest import GuestSim

_ROUNDS = 5


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


def compare_guest(sim: GuestSim, num_envs: int, counts: list[int], seconds: float) -> dict[str, float]:
    """The same for a guest; its side alone is one process of its own Python, started anew for every slice."""
    program = sim.program()
    script = str(Path(__file__).parent / "guests" / "guest_alone.py")
    slice_s = seconds / _ROUNDS / (1 + len(counts))
    folders = json.dumps([str(path) for path in sims.__path__])
    command = [str(program.python), script, folders, json.dumps(program.description), str(num_envs), str(slice_s)]
    rates_by_side: dict[str, list[float]] = {"alone": [], **{f"workers_{count}": [] for count in counts}}
    played = {f"workers_{count}": Played(replace(sim, workers=count).make(num_envs)) for count in counts}
    for _ in range(_ROUNDS):
        alone = subprocess.run(command, capture_output=True, text=True, check=True, env=program.variables())
        rates_by_side["alone"].append(float(alone.stdout))
        for name, side in played.items():
            before, start = side.decisions, time.perf_counter()
            while time.perf_counter() < start + slice_s:
                side.decide()
            rates_by_side[name].append((side.decisions - before) / (time.perf_counter() - start))
    for side in played.values():
        side.env.close()
    measured = {name: median(values) for name, values in rates_by_side.items()}
    out = {f"{name}_decisions_per_second": round(rate, 1) for name, rate in measured.items()}
    first = measured["alone"]
    return out | {f"{name}_ratio": round(rate / first, 3) for name, rate in measured.items() if name != "alone"}
