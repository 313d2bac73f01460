"""Wrapper that resets a gymnasium environment to a level."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from sims.host.interface import STATED
from sims.levels.space import LevelSpace

DECLARED = "mmrl_levels"
"""Entry of an environment's `metadata`: lower and upper bound by parameter of its levels."""


class LevelWrapper(gymnasium.Wrapper):
    """Begins each episode at a level: that of `options["level"]`, else that of the seed, else the one before.

    An environment that declares levels (`metadata["mmrl_levels"]`) gets the level as `options["level"]`, numbers by
    name. Of another one the parameters are attributes, which are set before it is reset. The last step of an episode
    reports the level as scores "level/<parameter>".

    Args:
        env: the environment.
        space: its level space.
        observed: whether observations have the level too, scaled to [-1, 1], under the name "level".
    """

    def __init__(self, env: gymnasium.Env, space: LevelSpace, observed: bool = False):
        super().__init__(env)
        self.levels, self.observed = space, observed
        metadata = env.unwrapped.metadata or {}
        self.takes_options = DECLARED in metadata
        self.states_scores = "scores" in metadata.get(STATED, ())
        self.level = space.grid(1, 0)
        if observed:
            inner = env.observation_space
            parts = dict(inner.spaces) if isinstance(inner, spaces.Dict) else {"observation": inner}
            level = spaces.Box(-1, 1, (len(space.bounds),), np.float32)
            self.observation_space = spaces.Dict({**parts, "level": level})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        chosen = (options or {}).get("level")
        if chosen is not None:
            self.level = self.levels.check(chosen)
        elif seed is not None:
            self.level = self.levels.decode(int(seed))
        if self.takes_options:
            options = {**(options or {}), "level": dict(self.level)}
        else:
            for name, value in self.level.items():
                setattr(self.env.unwrapped, name, value)
        observation, info = self.env.reset(seed=seed, options=options)
        return self._observe(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            scores = info.get("scores", {}) if self.states_scores else {}
            info = {**info, "scores": {**scores, **{f"level/{name}": value for name, value in self.level.items()}}}
        elif "scores" in info and not self.states_scores:
            info = {name: value for name, value in info.items() if name != "scores"}
        return self._observe(observation), reward, terminated, truncated, info

    def _observe(self, observation: Any) -> Any:
        if not self.observed:
            return observation
        parts = observation if isinstance(observation, Mapping) else {"observation": observation}
        return {**parts, "level": self.levels.scale(self.level)}


def find_space(env: gymnasium.Env, levels: Mapping[str, Any] | None) -> LevelSpace:
    """Return the level space of an environment: what it declares, with other bounds or attributes as `levels` says.

    Args:
        env: the environment as its package makes it.
        levels: lower and upper bound by parameter; None for those that the environment declares.

    Raises:
        ValueError: a parameter is none that the environment declares, or no attribute that is a number; or nothing is
            declared and nothing given.
    """
    declared = (env.unwrapped.metadata or {}).get(DECLARED)
    if declared is not None:
        if unknown := sorted(set(levels or {}) - set(declared)):
            raise ValueError(f"sim.levels has {unknown}, but the environment declares the levels {sorted(declared)}")
        return LevelSpace({**declared, **(levels or {})})
    attributes = {name: value for name, value in vars(env.unwrapped).items() if _is_number(value)}
    if not levels:
        raise ValueError(
            f'the environment declares no levels: write metadata = {{"{DECLARED}": {{"name": (lower, upper)}}}} in its '
            f"class, or name attributes of it as sim.levels={{name: [lower, upper]}}; it has {sorted(attributes)}"
        )
    if unknown := sorted(name for name in levels if not _is_number(getattr(env.unwrapped, name, None))):
        raise ValueError(
            f"sim.levels has {unknown}, which are no numbers among the attributes of the environment: it has "
            f"{sorted(attributes)}"
        )
    return LevelSpace(levels)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
