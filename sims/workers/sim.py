"""Any simulator of this Python environment, with its environments spread over processes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from mmrl.core.errors import check_positive
from mmrl.core.types import Sim
from sims.workers.process import Program
from sims.workers.vector import WorkerVectorEnv


@dataclass(frozen=True)
class WorkerSim(Sim):
    """The same simulator; its environments are stepped and drawn in other processes of this Python.

    Results are those of the simulator alone, whatever the number of processes. All else is the simulator's. A
    simulator with an argument `threads` that is 0, for all CPUs, gets an equal part of them in each process.

    Args:
        sim: the simulator, a dataclass.
        workers: number of processes; fewer where there are fewer environments.
        timeout_s: seconds after which a process that does not answer is killed and started again.
    """

    sim: Sim
    workers: int
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        check_workers(self.workers, self.timeout_s)
        if not is_dataclass(self.sim):
            raise ValueError(
                f"sim.workers: {type(self.sim).__name__} must be a dataclass, so that other processes can build it"
            )

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.sim.name

    def make(self, num_envs: int) -> VectorEnv:
        count = min(self.workers, num_envs)
        sim: Any = self.sim
        if getattr(sim, "threads", None) == 0:
            sim = replace(sim, threads=max(1, len(os.sched_getaffinity(0)) // count))
        return WorkerVectorEnv(Program(describe(sim), timeout_s=self.timeout_s), num_envs, count)

    def sizes(self) -> dict[str, Any]:
        return self.sim.sizes()

    def contract(self) -> dict[str, Any]:
        return self.sim.contract()

    def stepwise(self) -> WorkerSim:
        return replace(self, sim=self.sim.stepwise())

    def enable_drawing(self) -> WorkerSim:
        change = getattr(self.sim, "enable_drawing", None)
        return self if change is None else replace(self, sim=change())

    def task_of(self, seed: int) -> str:
        return self.sim.task_of(seed)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "sim":
            raise AttributeError(name)
        value = getattr(self.sim, name)  # demonstrate, label_images and other methods
        return run_expert if name == "expert" else value


def check_workers(workers: int, timeout_s: float) -> None:
    """Raise for numbers of processes and time limits that are none."""
    if workers < 1:
        raise ValueError(f"sim.workers must be at least 1, got {workers}; leave it out to step in this process")
    check_positive("sim", timeout_s=timeout_s)


def run_expert(env: WorkerVectorEnv) -> np.ndarray:
    """The scripted expert's next chunk for every environment, float32 [n, chunk, A]."""
    return env.expert()


def describe(value: Any) -> Any:
    """Description of a simulator, a dataclass of plain values and dataclasses, from which `sims.host.build` builds it.

    Raises:
        TypeError: an argument is neither.
    """
    if is_dataclass(value) and not isinstance(value, type):
        target = f"{type(value).__module__}.{type(value).__qualname__}"
        return {
            "_target_": target,
            **{field.name: describe(getattr(value, field.name)) for field in fields(value) if field.init},
        }
    if isinstance(value, Mapping):
        return {name: describe(part) for name, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):  # a list of OmegaConf is none of Python's
        parts = [describe(part) for part in value]
        return tuple(parts) if isinstance(value, tuple) else parts
    if value is None or isinstance(value, bool | int | float | str | np.ndarray):
        return value
    raise TypeError(f"sim.workers: a simulator's argument {value!r:.80} cannot be sent to another process")
