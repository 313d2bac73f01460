"""Check a gymnasium environment by two resets with one seed and some steps."""

from __future__ import annotations

import contextlib
import inspect
import time
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from sims.host.actions import ActionReader
from sims.host.masks import check_mask, plan_mask, read_mask

_COUNTED = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
STEPS = 16
"""Steps of the dry call, fewer where the episode ends."""
LONGEST_S = 5.0
_KEEPING = {
    "NormalizeObservation": "policy.normalize_observations=true, whose statistics are saved with the policy",
    "NormalizeReward": "rollout.normalize_rewards=true, whose statistics are saved with the run",
}
"""Wrappers with running statistics, and what takes their place."""


class DryCallError(ValueError):
    """An environment that does not keep gymnasium's interface."""


class NotFiniteError(DryCallError):
    """Numbers that are NaN or infinite."""


def check_env(make: Callable[[], gymnasium.Env], repeatable: bool = True, acts: bool = True) -> str | None:
    """Reset an environment twice with one seed, and step it with the same actions.

    Args:
        make: makes the environment.
        repeatable: refuse one in which the same seed and actions give something else.
        acts: its actions are those of `sims.host.adapter`; otherwise it is only reset and stepped.

    Returns:
        Where its mask of legal actions comes from (`sims.host.masks.plan_mask`); None without one.

    Raises:
        DryCallError: what is wrong and what helps.
    """
    env = make()
    try:
        _refuse_statistics(env)
        _check_spaces(env)
        first, source = _play(env, acts)
        if repeatable:
            _compare(first, _play(env, acts)[0])
        return source
    finally:
        with contextlib.suppress(Exception):  # it was only looked at
            env.close()


def _refuse_statistics(env: Any) -> None:
    while env is not None:
        name = type(env).__name__
        if name in _KEEPING:
            raise DryCallError(
                f"the wrapper {name} keeps statistics that would be fresh in every evaluation; leave it out and set "
                f"{_KEEPING[name]}"
            )
        env = getattr(env, "__dict__", {}).get("env")


def _check_spaces(env: Any) -> None:
    for name in ("observation_space", "action_space"):
        if not isinstance(getattr(env, name, None), spaces.Space):
            raise DryCallError(f"{name} must be a space of gymnasium, got {getattr(env, name, None)!r:.60}")


def _play(env: gymnasium.Env, acts: bool) -> tuple[list, str | None]:
    """What a reset with seed 0 and some steps give: observations, rewards and ends."""
    began = time.monotonic()
    observation, info = _reset(env)
    source = plan_mask(env, info) if acts else None
    env.action_space.seed(0)
    log = [(observation, 0.0, False)]
    for step in range(STEPS):
        action = _choose(env, source, observation, info)
        try:
            result = env.step(action)
        except Exception as error:
            if step:
                break  # it works, and fails sometimes: that episode is an error in a run too
            raise DryCallError(f"the first step fails: {type(error).__name__}: {error}") from error
        try:
            observation, reward, terminated, truncated, info = _check_step(result)
            _check_observation(env, observation, "step")
        except NotFiniteError:
            if step:
                break
            raise
        log.append((_copy(observation), reward, terminated, truncated))
        if terminated or truncated or time.monotonic() - began > LONGEST_S:
            break
    return log, source


def _reset(env: gymnasium.Env) -> tuple[Any, dict]:
    try:
        result = env.reset(seed=0)
    except Exception as error:
        if isinstance(error, TypeError) and not _takes_seed(env):
            raise DryCallError(
                "reset takes no seed; write def reset(self, *, seed=None, options=None) and begin with "
                "super().reset(seed=seed)"
            ) from error
        raise DryCallError(f"reset(seed=0) fails: {type(error).__name__}: {error}") from error
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], Mapping):
        raise DryCallError(f"reset must return (observation, info) with a dict, got {_describe(result)}")
    _check_observation(env, result[0], "reset")
    return _copy(result[0]), dict(result[1])


def _takes_seed(env: Any) -> bool:
    inner = getattr(env, "unwrapped", env)
    parameters = inspect.signature(inner.reset).parameters.values()
    return any(each.name == "seed" or each.kind is each.VAR_KEYWORD for each in parameters)


def _choose(env: gymnasium.Env, source: str | None, observation: Any, info: Mapping[str, Any]) -> Any:
    """The first legal action, or real numbers near 0: what a machine can be expected to bear."""
    space = env.action_space
    if source is None:
        return _find_mildest(space)
    reader = ActionReader(space)
    try:
        legal = check_mask(read_mask(env, source, observation, info), reader.blocks, ended=False)
    except ValueError as error:
        raise DryCallError(str(error)) from error
    parts = np.split(legal, np.cumsum(reader.blocks)[:-1])
    choice = [int(np.flatnonzero(part)[0]) for part in parts]
    return reader.decode(choice[0] if isinstance(space, spaces.Discrete) else np.array(choice))


def _find_mildest(space: spaces.Space) -> Any:
    if isinstance(space, spaces.Discrete):
        return int(space.start)
    if isinstance(space, spaces.Box):
        return np.clip(np.zeros(space.shape), space.low, space.high).astype(space.dtype)
    if isinstance(space, (spaces.MultiDiscrete, spaces.MultiBinary)):
        return (np.zeros(space.shape, np.int64) + getattr(space, "start", 0)).astype(space.dtype)
    return space.sample()


def _check_step(result: Any) -> tuple[Any, float, bool, bool, dict]:
    if not isinstance(result, tuple) or len(result) != 5:
        raise DryCallError(
            f"step must return (observation, reward, terminated, truncated, info), got {_describe(result)}"
        )
    observation, reward, terminated, truncated, info = result
    if np.ndim(reward) or not hasattr(reward, "__float__"):
        raise DryCallError(f"the reward must be one number, got {_describe(reward)}: return float(...)")
    if not np.isfinite(float(reward)):
        raise NotFiniteError(f"the first reward is not finite: {reward}")
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if np.ndim(flag) or not isinstance(flag, (bool, np.bool_, int, np.integer)):
            raise DryCallError(f"{name} must be True or False, got {_describe(flag)}")
    if not isinstance(info, Mapping):
        raise DryCallError(f"the info of a step must be a dict, got {_describe(info)}")
    return observation, float(reward), bool(terminated), bool(truncated), dict(info)


def _check_observation(env: gymnasium.Env, observation: Any, source: str) -> None:
    _check_part(env.observation_space, observation, f"the observation of {source}")


def _check_part(space: spaces.Space, value: Any, name: str) -> None:
    """Refuse values of another kind or shape than their space; values outside of its bounds are let pass."""
    if isinstance(space, spaces.Dict):
        if not isinstance(value, Mapping) or set(value) != set(space.spaces):
            names = sorted(map(str, value)) if isinstance(value, Mapping) else _describe(value)
            raise DryCallError(f"{name} must be a dict of {sorted(map(str, space.spaces))}, got {names}")
        for key, part in space.spaces.items():
            _check_part(part, value[key], f"{name}, {key!r},")
    elif isinstance(space, spaces.Box):
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise DryCallError(f"{name} is no array: {error}") from error
        if array.shape != space.shape or array.dtype.kind not in "fiub":
            raise DryCallError(
                f"{name} has shape {array.shape} and type {array.dtype}, but observation_space is {space}"
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise NotFiniteError(f"{name} has numbers that are not finite")
    elif isinstance(space, _COUNTED) and not _counts(space, value):
        raise DryCallError(f"{name} is {value!r:.60}, which is not in {space}")


def _counts(space: spaces.Space, value: Any) -> bool:
    """Whether a value is in a space of numbered values, as whatever type of integer."""
    array = np.asarray(value)
    whole = array.dtype.kind in "iub" and array.shape == space.shape
    return whole and space.contains(array.astype(space.dtype)[()])


def _compare(first: list, second: list) -> None:
    for step, (one, two) in enumerate(zip(first, second)):
        what = "two resets with seed 0 give" if step == 0 else f"step {step} after reset(seed=0) gives"
        if not _close(one[0], two[0]):
            raise DryCallError(f"{what} different observations; {_REMEDY}")
        if not np.allclose(one[1], two[1], rtol=1e-3, atol=1e-6) or one[2:] != two[2:]:
            raise DryCallError(f"{what} another reward or end for the same actions; {_REMEDY}")
    if len(first) != len(second):
        raise DryCallError(f"two episodes with seed 0 and the same actions end after different steps; {_REMEDY}")


_REMEDY = (
    "draw from self.np_random after super().reset(seed=seed), and leave out wrappers that keep something over "
    "episodes; sim.repeatable=false accepts it, and then no episode can be repeated"
)


def _close(one: Any, two: Any) -> bool:
    """Whether two observations are equal up to the rounding of a physics engine."""
    if isinstance(one, Mapping):
        return all(_close(part, two[name]) for name, part in one.items())
    if isinstance(one, (list, tuple)):
        return len(one) == len(two) and all(map(_close, one, two))
    if isinstance(one, str) or one is None:
        return one == two
    one, two = np.asarray(one), np.asarray(two)
    if one.dtype.kind != "f" or one.shape != two.shape:
        return bool(np.array_equal(one, two)) if one.dtype != object else True
    return bool(np.allclose(one, two, rtol=1e-3, atol=1e-6, equal_nan=True))


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _copy(part) for name, part in value.items()}
    return value.copy() if isinstance(value, np.ndarray) else value


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return type(value).__name__ if value is not None else "None"
