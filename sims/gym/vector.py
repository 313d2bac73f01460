"""Synchronous vector environment whose state can be saved and resumed bit for bit."""

from __future__ import annotations

import io
import logging
import pickle
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import concatenate, iterate
from PIL import Image

from mmrl.core.lazy_module import torch
from mmrl.files.pickled import PICKLED
from sims.gym.guard import Guard, finite
from sims.gym.plain_state import NotPlainError, Packer, Unpacker

log = logging.getLogger(__name__)

_BUFFERS = ("_env_obs", "_observations", "_rewards", "_terminations", "_truncations", "_autoreset_envs")


class GymVectorEnv(SyncVectorEnv):
    """gymnasium's synchronous vector environment of guarded environments, with a state dict.

    With autoreset disabled an environment that ended keeps still and repeats its flags until it is reset.
    """

    envs: list[Guard]  # type: ignore[assignment]
    _template: Guard | None = None  # an environment that shows whether new ones take a state; made when first needed

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """As in gymnasium, with one finiteness check for the whole batch and without copies."""
        resting = (
            self._autoreset_envs.tolist()
            if self.autoreset_mode is AutoresetMode.NEXT_STEP
            else [False] * len(self.envs)
        )
        steps = [
            _reset_step(env) if rests else env.attempt(action)
            for env, rests, action in zip(self.envs, resting, self._each(actions), strict=True)
        ]
        try:
            batch = self._batch([step[0] for step in steps])
        except (ValueError, TypeError, KeyError, AttributeError):  # an observation of another shape
            fits = [self.single_observation_space.contains(step[0]) for step in steps]
            steps = [step if good else env.refuse_shape() for env, step, good in zip(self.envs, steps, fits)]
            batch = self._batch([step[0] for step in steps])
        if not finite(batch):
            steps = [
                step if rests or finite(step[0]) else env.refuse()
                for env, rests, step in zip(self.envs, resting, steps)
            ]
            batch = self._batch([step[0] for step in steps])
        observations, rewards, terminated, truncated, reports = map(list, zip(*steps))
        infos: dict[str, Any] = {}
        self._terminations, self._truncations = np.array(terminated, dtype=bool), np.array(truncated, dtype=bool)
        ended = self._terminations | self._truncations
        if self.autoreset_mode is AutoresetMode.SAME_STEP and ended.any():
            for i in np.flatnonzero(ended):
                infos = self._add_info(infos, {"final_obs": observations[i], "final_info": reports[i]}, i)  # type: ignore[arg-type]
                observations[i], reports[i] = self.envs[i].reset()
            batch = self._batch(observations)
        self._env_obs, self._autoreset_envs = observations, ended
        self._rewards = np.array(rewards, dtype=np.float64)
        # the flags are changed in place by the reset of some environments
        flags = self._terminations.copy(), self._truncations.copy()
        return batch, self._rewards, *flags, merge_infos(reports, self, infos)

    def _each(self, actions: Any) -> Any:
        """The action of each environment; discrete actions as plain ints, which are checked faster."""
        if isinstance(self.single_action_space, spaces.Discrete):
            return np.asarray(actions).tolist()
        return iterate(self.action_space, actions)

    def _batch(self, seen: list[Any]) -> Any:
        """Batch the observations of all environments into new arrays."""
        space = self.single_observation_space
        if isinstance(space, spaces.Box):
            batch = np.array(seen, dtype=space.dtype)
            if batch.shape[1:] != space.shape:
                raise ValueError(f"observations of shape {batch.shape[1:]} are none of {space}")
            return batch
        return deepcopy(concatenate(space, seen, self._observations))

    def render(self, i: int = 0, size: int = 256) -> np.ndarray:  # type: ignore[override]
        """Image of environment i, uint8 [size, size, 3]; requires render_mode="rgb_array"."""
        if self.render_mode != "rgb_array":
            raise TypeError(
                f"{self.envs[i]} has render_mode={self.render_mode!r}, give sim.kwargs.render_mode=rgb_array"
            )
        image = Image.fromarray(np.asarray(self.envs[i].render()))
        return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR))

    def state_dict(self) -> dict[str, Any]:
        """State of the environments with their random generators, counters and physics.

        Plain data where new environments take it exactly; else pickled bytes, under the name that says so.
        """
        try:
            return {"plain": self._pack()}
        except NotPlainError as reason:
            log.info("the environments are saved as pickled objects: %s", reason)
        buffer = io.BytesIO()
        try:
            _EnvPickler(buffer).dump({name: getattr(self, name) for name in ("envs", *_BUFFERS)})
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            raise NotImplementedError(f"{self.envs[0]} cannot be saved: {error}") from error
        return {PICKLED: torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved state. Pickled states can run any code: load only trusted files."""
        if "plain" in state:
            packed_envs, buffers = state["plain"]
            self._refuse_other_number(len(packed_envs))
            for packed, env in zip(packed_envs, self.envs):
                _fill_plain(packed, env)
            stored = Unpacker().unpack(buffers)
        else:
            stored = pickle.loads(np.asarray(state[PICKLED]).tobytes())
            self._refuse_other_number(len(stored["envs"]))
            for env in self.envs:
                env.close()
        for name, value in stored.items():
            setattr(self, name, value)

    def _refuse_other_number(self, saved: int) -> None:
        if saved != self.num_envs:
            raise ValueError(f"the saved simulator has {saved} environments, this one {self.num_envs}")

    def _pack(self) -> list[Any]:
        """Environments and buffers as plain data, after checking that a new environment takes it."""
        packed_envs = [Packer().pack(env) for env in self.envs]
        if self._template is None:
            self._template = self.env_fns[0]()
        for packed in packed_envs:
            _fill_plain(packed, self._template)
            if not _equal(Packer().pack(self._template), packed):
                raise NotPlainError("a new environment does not take all of the state")
        return [packed_envs, Packer().pack({name: getattr(self, name) for name in _BUFFERS})]


def _fill_plain(packed: Any, env: gymnasium.Env) -> None:
    try:
        env.reset(seed=0)  # some make their parts at the first reset
        Unpacker().unpack(packed, env)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise NotPlainError(f"a new environment does not take the state: {error}") from error


def _equal(one: Any, two: Any) -> bool:
    """Whether two packed states are equal, with NaN equal to itself."""
    if isinstance(one, torch.Tensor):
        return isinstance(two, torch.Tensor) and one.numpy().tobytes() == two.numpy().tobytes()
    if isinstance(one, dict):
        return isinstance(two, dict) and one.keys() == two.keys() and all(_equal(one[key], two[key]) for key in one)
    if isinstance(one, list):
        return isinstance(two, list) and len(one) == len(two) and all(map(_equal, one, two))
    return one == two or (one != one and two != two)


def _reset_step(env: Guard) -> tuple[Any, float, bool, bool, dict[str, Any]]:
    """The step in which an environment is only reset."""
    observation, info = env.reset()
    return observation, 0.0, False, False, info


class _EnvPickler(pickle.Pickler):
    """Pickles environments by their attributes, where `EzPickle` would store constructor arguments only."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, gymnasium.Env):
            return _blank, (type(obj),), obj.__dict__, None, None, _fill
        return NotImplemented


def _blank(kind: type[gymnasium.Env]) -> gymnasium.Env:
    return object.__new__(kind)


def _fill(env: gymnasium.Env, attributes: dict[str, Any]) -> None:
    env.__dict__.update(attributes)


_NUMBERS = (int, float, bool, np.number, np.bool_)


def merge_infos(
    reports: Sequence[Mapping[str, Any]], venv: VectorEnv, start: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Merge the infos of one step; keys with plain numbers in all environments are converted at once.

    Args:
        reports: of every environment, in order.
        venv: whose way of adding one environment's report is used for everything else.
        start: infos to add to.
    """
    infos = start or {}
    if not any(reports):
        return infos
    shared, everyone = set(), np.ones(len(reports), dtype=np.bool_)
    for key, value in reports[0].items():
        if isinstance(value, _NUMBERS) and key not in infos:
            column = [report.get(key) for report in reports]
            if len(set(map(type, column))) == 1:
                with suppress(OverflowError):  # a whole number of more than 64 bits
                    infos[key], infos[f"_{key}"] = np.array(column, dtype=type(value)), everyone
                    shared.add(key)
    for i, report in enumerate(reports):
        if len(report) > len(shared):
            rest = {key: value for key, value in report.items() if key not in shared}
            infos = _add_report(infos, rest, i, venv)
    return infos


def _add_report(infos: dict[str, Any], report: Mapping[str, Any], i: int, venv: VectorEnv) -> dict[str, Any]:
    """Add the report of environment i; an entry of another type than that of other environments is left out."""
    try:
        return venv._add_info(infos, dict(report), i)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError) as error:
        if len(report) == 1:
            log.debug("an entry of infos is left out: %s", error)
            return infos
    for key, value in report.items():
        infos = _add_report(infos, {key: value}, i, venv)
    return infos
