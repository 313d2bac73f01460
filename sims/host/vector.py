"""Single environments side by side, each with its own failures."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from sims.host.interface import convert_scores


class GuestVectorEnv(gymnasium.vector.VectorEnv):
    """Steps environments one after the other; one that ended keeps still until it is reset.

    An environment that raises in a step, or gives a number that is not finite, is truncated with `infos["error"]` and
    keeps the observation before; it is made again at its next reset. One whose reset fails is made again at once; a
    second failure is raised. Text is a list of strings.

    Args:
        make_env: makes one environment.
        num_envs: how many.
    """

    def __init__(self, make_env: Callable[[], gymnasium.Env], num_envs: int):
        self._make_env, self.num_envs = make_env, num_envs
        self.envs = [make_env() for _ in range(num_envs)]
        first = self.envs[0]
        self.metadata = {**first.metadata, "autoreset_mode": "Disabled"}
        self.render_mode = first.render_mode
        self.single_observation_space, self.single_action_space = first.observation_space, first.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.over = np.zeros(num_envs, bool)
        self._broken = np.zeros(num_envs, bool)
        self._flags = [(False, False)] * num_envs
        self._seen: list[Any] = [None] * num_envs

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        mask = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, bool)), bool)
        seeds: Sequence[Any] = seed if isinstance(seed, (list, tuple)) else [seed] * self.num_envs
        infos: dict[str, Any] = {}
        for i in np.flatnonzero(mask).tolist():
            self._seen[i], info = self._begin(i, seeds[i])
            self._flags[i], self.over[i] = (False, False), False
            infos = self._add_info(infos, info, i)
        return self._batch(), infos

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        rewards, infos = np.zeros(self.num_envs), {}
        for i in np.flatnonzero(~self.over).tolist():
            rewards[i], self._flags[i], info = self._attempt(i, actions[i])
            self.over[i] = any(self._flags[i])
            infos = self._add_info(infos, info, i)
        terminated, truncated = (np.array([flags[k] for flags in self._flags], bool) for k in (0, 1))
        return self._batch(), rewards, terminated, truncated, infos

    def _begin(self, i: int, seed: Any) -> tuple[Any, dict[str, Any]]:
        """Reset environment i; one that fails is made again, and its second failure is raised."""
        if self._broken[i]:
            self._replace(i)
        try:
            return self._reset_one(i, seed)
        except Exception:
            traceback.print_exc()
            self._replace(i)
            return self._reset_one(i, seed)

    def _reset_one(self, i: int, seed: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = self.envs[i].reset(seed=seed)
        if not _is_finite(observation):
            raise FloatingPointError("the first observation is not finite")
        return _copy(observation), info

    def _attempt(self, i: int, action: Any) -> tuple[float, tuple[bool, bool], dict[str, Any]]:
        try:
            observation, reward, terminated, truncated, info = self.envs[i].step(action)
            reward, observation, info = float(reward), _copy(observation), convert_scores(info)
            if not np.isfinite(reward) or not _is_finite(observation):
                raise FloatingPointError("observation or reward is not finite")
        except Exception as error:
            traceback.print_exc()
            self._broken[i] = True
            return 0.0, (False, True), {"error": f"{type(error).__name__}: {error}"}
        self._seen[i] = observation
        return reward, (bool(terminated), bool(truncated)), info

    def _replace(self, i: int) -> None:
        try:
            self.envs[i].close()
        except Exception:
            traceback.print_exc()
        self.envs[i], self._broken[i] = self._make_env(), False

    def _batch(self) -> Any:
        """Observations of all environments: arrays [n, ...], and lists of text."""
        space = self.single_observation_space
        if not isinstance(space, spaces.Dict):
            return np.array(self._seen, dtype=space.dtype)
        batch = {name: [observation[name] for observation in self._seen] for name in space.spaces}
        texts = {name for name, part in space.spaces.items() if isinstance(part, spaces.Text)}
        return {
            name: rows if name in texts else np.array(rows, dtype=space.spaces[name].dtype)
            for name, rows in batch.items()
        }

    def render(self, i: int = 0, size: int = 256) -> np.ndarray:  # type: ignore[override]
        """Image of environment i, uint8 [H, W, 3]; one that takes a size in pixels gets it."""
        try:
            return np.asarray(self.envs[i].render(size))  # type: ignore[call-arg]
        except TypeError:
            return np.asarray(self.envs[i].render())

    def close_extras(self, **kwargs: Any) -> None:
        for env in self.envs:
            env.close()


def _copy(seen: Any) -> Any:
    """An observation with arrays of its own: an environment may use one buffer for all of them."""
    if isinstance(seen, dict):
        return {name: _copy(part) for name, part in seen.items()}
    return seen.copy() if isinstance(seen, np.ndarray) else seen


def _is_finite(seen: Any) -> bool:
    if isinstance(seen, dict):
        return all(_is_finite(part) for part in seen.values())
    array = np.asarray(seen)
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())
