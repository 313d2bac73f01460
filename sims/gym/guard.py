"""Isolate the failure of one environment from the others of a vector environment."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from mmrl.core.rng import derive_seed
from sims.divergence import refuse_divergence
from sims.host.interface import convert_scores, drop_names, foreign_names

log = logging.getLogger(__name__)


class Guard(gymnasium.Wrapper):
    """Turns an exception or a non-finite number into a truncated step whose info has "error".

    The observation of such a step is the one before it. The next reset starts a new environment. An environment that
    ended keeps still: steps before the next reset repeat its flags.

    Observations are copied, since an environment may use one buffer for all of them. Entries of `info` that have a name
    of mmrl's interface are dropped unless the environment states them (`sims.host.interface`).

    Args:
        make: makes the environment, now and after every failure.
        stated: names of mmrl's interface that the environment uses as mmrl does.
    """

    def __init__(self, make: Callable[[], gymnasium.Env], stated: Sequence[str] = ()):
        super().__init__(make())
        self._make = make
        self._foreign = foreign_names(self.env, stated)
        self._seed = 0
        self._failures = 0
        self._broken = False
        self._before: Any = None  # the observation before the last step, and after it
        self._observation: Any = None
        self._flags = (False, False)  # terminated, truncated

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._seed, self._failures = seed, 0
        if self._broken:
            self._close_broken()
            self.env, self._broken = self._make(), False
            # the random stream of the old one may be lost: a new one that depends on the environment and the failure
            # only; the lowest bit stays, which tells the states of one split from those of the other
            fresh = derive_seed("remake", self._seed, self._failures) & ~1 | self._seed & 1
            seed = fresh if seed is None else seed
        self._flags = (False, False)
        observation, info = self.env.reset(seed=seed, options=options)
        self._observation = copy_arrays(observation)
        return self._observation, drop_names(info, self._foreign)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        out = self.attempt(action)
        return out if finite(out[0]) else self.refuse()

    def attempt(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step without checking that the observation is finite; callers that find it is not call `refuse`."""
        terminated, truncated = self._flags
        if terminated or truncated:
            return self._observation, 0.0, terminated, truncated, {}
        self._before = self._observation
        try:
            observation, reward, terminated, truncated, info = self.env.step(action)
            self._observation, reward = copy_arrays(observation), read_number(reward)
            self._flags = (bool(terminated), bool(truncated))
            info = convert_scores(drop_names(info, self._foreign))
        except Exception as error:
            log.exception("%s failed in step", self.env)
            return self._end_with_error(f"{type(error).__name__}: {error}")
        if not math.isfinite(reward):
            return self.refuse(reward)
        return self._observation, reward, *self._flags, info

    def refuse(self, reward: Any = None) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Result of the last step if its numbers are not finite: a truncated step with an error."""
        text = self._observation if reward is None else f"{self._observation}, reward {reward}"
        log.error("%s gave an observation or reward that is not finite: %s", self.env, text)
        return self._end_with_error("observation or reward is not finite")

    def refuse_shape(self) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Result of the last step if its observation is none of the environment's space."""
        log.error("%s gave an observation that is none of %s", self.env, self.observation_space)
        return self._end_with_error(f"the observation is none of {self.observation_space}")

    def _end_with_error(self, message: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._broken = True
        self._failures += 1
        self._flags = (False, True)
        self._observation = self._before
        return self._observation, 0.0, False, True, {"error": message}

    def _close_broken(self) -> None:
        try:
            self.env.close()
        except Exception:
            log.exception("%s failed to close after an error", self.env)


def read_number(reward: Any) -> float:
    """A reward as a float.

    Raises:
        TypeError: it is no number, such as None or an array.
    """
    if (isinstance(reward, np.ndarray) and reward.ndim) or not hasattr(reward, "__float__"):
        raise TypeError(f"the reward must be one number, got {type(reward).__name__} {reward!r:.60}")
    return float(reward)


def copy_arrays(observation: Any) -> Any:
    """The observation with arrays of its own."""
    if isinstance(observation, np.ndarray):
        return observation.copy()
    if isinstance(observation, Mapping):
        return {name: copy_arrays(part) for name, part in observation.items()}
    return observation


def finite(observation: Any) -> bool:
    """Whether all real numbers of an observation are finite."""
    if isinstance(observation, Mapping):
        return all(finite(part) for part in observation.values())
    array = np.asarray(observation)
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


class Diverged(gymnasium.Wrapper):
    """Raises where the simulation diverges (`refuse_divergence`).

    Args:
        env: a MuJoCo environment of gymnasium, whose `unwrapped` has `data`.
    """

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        self._simulated: Any = env.unwrapped  # looked up once: every wrapper in between asks the next

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        with refuse_divergence(self._simulated.data):
            return self.env.step(action)


def add_divergence_check(env: gymnasium.Env) -> gymnasium.Env:
    """Wrap the environment with the divergence check if it is simulated by MuJoCo."""
    return Diverged(env) if hasattr(getattr(env.unwrapped, "data", None), "warning") else env
