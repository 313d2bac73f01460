"""Environments that are registered with gymnasium, as a guest."""

from __future__ import annotations

import importlib
from typing import Any

import gymnasium
from gymnasium import spaces


class Registered:
    """Environments of one id with a vector observation.

    Args:
        id: as in `gymnasium.make`, or "package:Name-v0" to import a package first.
        kwargs: further arguments of the environment.
        max_episode_steps: time limit in decisions; None keeps the registered one.
    """

    def __init__(self, id: str, kwargs: Any = None, max_episode_steps: Any = None):
        package, _, _ = id.rpartition(":")
        if package:
            importlib.import_module(package)
        self.id, self.kwargs, self.max_episode_steps = id, dict(kwargs or {}), max_episode_steps

    @property
    def name(self) -> str:
        return self.id

    def make_env(self) -> gymnasium.Env:
        return gymnasium.make(
            self.id, max_episode_steps=self.max_episode_steps, disable_env_checker=True, **self.kwargs
        )

    def sizes(self) -> dict[str, Any]:
        """Sizes of a policy that reads a state vector; empty for other observations."""
        env = self.make_env()
        seen, action = env.observation_space, env.action_space
        env.close()
        if not isinstance(seen, spaces.Box) or len(seen.shape) != 1:
            return {}
        sizes = {"observation_dims": seen.shape[0]}
        if isinstance(action, spaces.Discrete):
            return {**sizes, "actions": int(action.n), "kind": "categorical", "low": -1.0, "high": 1.0}
        bounds = {"low": action.low.tolist(), "high": action.high.tolist()}  # type: ignore[attr-defined]
        return {**sizes, "actions": action.shape[0], "kind": "gaussian", **bounds}  # type: ignore[index]

    def contract(self) -> dict[str, Any]:
        return {"sim": self.id, "kwargs": self.kwargs, "max_episode_steps": self.max_episode_steps}
