"""Environments of the Python API: a user's environment for training, and a run's environment for acting."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np

from mmrl.api.arguments import to_arguments, to_text
from mmrl.config.compose import groups
from mmrl.core.types import Sim

_ID = re.compile(r"(?:[\w.]+:)?(?:[\w.-]+/)?[\w.-]+-v\d+")


def sim_arguments(key: str, value: Any) -> Iterator[str]:
    """The arguments of a simulator: an option's name, a gymnasium id, a function that makes an environment, or a Sim.

    A function is registered with gymnasium in this process, as its name with -v0, or the next version that is free.
    """
    if callable(value) and not isinstance(value, Sim):
        name = re.sub(r"[^\w.-]", "", getattr(value, "__name__", type(value).__name__)) or "environment"
        value = _register(name, value)
    if not isinstance(value, str):
        yield from to_arguments(key, value)
    elif value not in groups()["sim"] and _ID.fullmatch(value):
        yield "sim=gym"
        yield f"sim.id={to_text(value)}"
    else:
        yield f"{key}={value}"


def _register(name: str, make: Any) -> str:
    """Register a function that makes an environment; another one of the same name keeps its own id."""
    registered = gymnasium.registry
    version = 0
    while f"{name}-v{version}" in registered and registered[f"{name}-v{version}"].entry_point is not make:
        version += 1
    if f"{name}-v{version}" not in registered:
        gymnasium.register(f"{name}-v{version}", entry_point=make)
    return f"{name}-v{version}"


class SingleEnv(gymnasium.Env):
    """One environment of a simulator by gymnasium's single-environment interface.

    Observations, actions and infos are row 0 of those of its vector environment.

    Args:
        sim: the simulator.
    """

    def __init__(self, sim: Sim):
        self.vector_env = sim.make(1)
        self.metadata = dict(self.vector_env.metadata)
        self.observation_space = self.vector_env.single_observation_space
        self.action_space = self.vector_env.single_action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        seed = int(self.np_random.integers(2**31)) if seed is None else seed
        observation, infos = self.vector_env.reset(seed=[seed])
        return _first(observation), _first(infos)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, rewards, terminated, truncated, infos = self.vector_env.step(np.asarray(action)[None])
        first = _first(observation), float(rewards[0]), bool(terminated[0]), bool(truncated[0])
        return *first, _first(infos)

    def render(self, size: int = 256) -> np.ndarray:  # type: ignore[override]
        """The camera's image, uint8 [size, size, 3], where the simulator has one."""
        return self.vector_env.render(0, size)  # type: ignore[call-arg]

    def close(self) -> None:
        self.vector_env.close()


def _first(rows: Any) -> Any:
    """Row 0 of an array or list, or of every entry of a mapping."""
    return {name: _first(value) for name, value in rows.items()} if isinstance(rows, dict) else rows[0]
