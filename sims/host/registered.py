"""Environments that are registered with gymnasium, as a guest."""

from __future__ import annotations

import importlib
from typing import Any

import gymnasium

from sims.host.adapter import adapt, state_sizes
from sims.host.dry_call import check_env
from sims.host.interface import drop_names, foreign_names


class Registered:
    """Environments of one id, with the observations and actions that `sims.host.adapter` reads.

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
        self._mask_source: str | None = "?"  # not asked yet

    @property
    def name(self) -> str:
        return self.id

    def make_env(self) -> gymnasium.Env:
        """One environment, with observations and actions of control policies; its info has no name of mmrl's."""
        try:
            if self._mask_source == "?":
                self._mask_source = check_env(self._make_registered)
            return OwnInfo(adapt(self._make_registered(), self._mask_source))
        except ValueError as error:
            raise ValueError(f"sim.options.id={self.id!r}: {error}") from error

    def _make_registered(self) -> gymnasium.Env:
        return gymnasium.make(
            self.id, max_episode_steps=self.max_episode_steps, disable_env_checker=True, **self.kwargs
        )

    def sizes(self) -> dict[str, Any]:
        """Sizes of a control policy."""
        env = self.make_env()
        sizes = state_sizes(env.observation_space, env.action_space)
        env.close()
        return sizes

    def contract(self) -> dict[str, Any]:
        return {"sim": self.id, "kwargs": self.kwargs, "max_episode_steps": self.max_episode_steps}


class OwnInfo(gymnasium.Wrapper):
    """Drops the entries of `info` that have a name of mmrl's interface and mean something else."""

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        self._foreign = foreign_names(env)

    def reset(self, **kwargs: Any) -> Any:
        observation, info = self.env.reset(**kwargs)
        return observation, drop_names(info, self._foreign)

    def step(self, action: Any) -> Any:
        *result, info = self.env.step(action)
        return (*result, drop_names(info, self._foreign))
