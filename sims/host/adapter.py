"""Environments as control policies read them: a vector of numbers, an image and a mask of actions.

Observations are read as Stable-Baselines3 reads them: discrete ones one-hot, dicts side by side, images as channels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from sims.host.actions import ActionReader, SpaceError
from sims.host.masks import MASK, check_mask, join_mask, read_mask

STATE, IMAGE = "state", "image"
"""Names of the parts of an observation, beside the mask of actions."""
IMAGE_FEATURES = 50
"""Width of the features that a policy computes from an image, unless policy.image_features says otherwise."""
SMALLEST_IMAGE = 17
"""Pixels a side below which bytes are numbers and no image: the convolutions of the policies need that many."""


class ControlEnv(gymnasium.Wrapper):
    """Observations "state" float32 [S], "image" uint8 [H, W, C] and "action_mask" bool, as far as there are such.

    A state alone is a plain array. Actions are a number from 0, numbers from 0 [D], or reals in a bounded box [A].

    Args:
        env: the environment.
        mask_source: where the mask of legal actions comes from: "observation", "info", "method" (`action_masks()`), or
            None without one.

    Raises:
        SpaceError: a space is none of those that can be converted; the message names it.
    """

    def __init__(self, env: gymnasium.Env, mask_source: str | None = None):
        super().__init__(env)
        self.mask_source = mask_source
        self._actions = ActionReader(env.action_space)
        self._parts = ObservationReader(env.observation_space, without_mask=mask_source == "observation")
        self.action_space = self._actions.space
        parts = self._parts.parts()
        if mask_source is not None:
            parts[MASK] = spaces.Box(0, 1, (self._actions.mask_size,), np.int8)
        self._plain = list(parts) == [STATE]
        self.observation_space = parts[STATE] if self._plain else spaces.Dict(parts)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return self._read(observation, info, ended=False), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(self._actions.decode(action))
        return self._read(observation, info, bool(terminated or truncated)), reward, terminated, truncated, info

    def _read(self, observation: Any, info: Mapping[str, Any], ended: bool) -> Any:
        mask = self.mask_source and read_mask(self.env, self.mask_source, observation, info)
        return self.convert(observation, mask, ended)

    def convert(self, observation: Any, mask: Any, ended: bool = False) -> Any:
        """The parts of an observation of the wrapped environment, with the mask of legal actions where it has one."""
        parts = self._parts.read(observation)
        if self.mask_source is not None:
            parts[MASK] = check_mask(mask, self._actions.blocks, ended)
        return parts[STATE] if self._plain else parts

    def decode(self, action: Any) -> Any:
        """The wrapped environment's action."""
        return self._actions.decode(action)


def adapt(env: gymnasium.Env, mask_source: str | None = None) -> gymnasium.Env:
    """The environment with the spaces of control policies; one that has them is unchanged.

    Raises:
        SpaceError: a space is none of those that can be converted.
    """
    observed = env.observation_space
    if mask_source is None and isinstance(observed, spaces.Dict) and _all_numbers(observed):
        env = gymnasium.wrappers.FlattenObservation(env)
        observed = env.observation_space
    vector = isinstance(observed, spaces.Box) and len(observed.shape) == 1 and observed.dtype.kind in "fiub"
    if mask_source is None and vector and ActionReader(env.action_space).space == env.action_space:
        return env
    return ControlEnv(env, mask_source)


class OuterView:
    """Observations and actions of an environment as its package makes it, for a policy that acts in `adapt(env)`.

    Args:
        env: the environment.
        mask_source: of its mask of legal actions, as `adapt` takes it.

    Raises:
        SpaceError: a space is none of those that can be converted.
    """

    def __init__(self, env: gymnasium.Env, mask_source: str | None = None):
        self._env, self._mask_source = env, mask_source
        self._adapted = adapt(env, mask_source)

    def read(self, observation: Any, mask: Any = None) -> Any:
        """What a control policy reads of one observation.

        Args:
            observation: as the environment gives it.
            mask: of legal actions; needed where the environment has one outside of its observations.

        Raises:
            ValueError: the observation is none of the environment's, or a mask is missing or has another size.
        """
        if mask is not None:
            mask = join_mask(mask)
        elif self._mask_source == "observation":
            mask = join_mask(observation[MASK])
        elif self._mask_source is not None:
            place = "info['action_mask']" if self._mask_source == "info" else "env.get_wrapper_attr('action_masks')()"
            raise ValueError(f"the environment has a mask of legal actions; give action_masks={place}")
        return self._read(self._adapted, observation, mask)

    def _read(self, env: Any, observation: Any, mask: Any) -> Any:
        if env is self._env:
            return observation
        observation = self._read(env.env, observation, mask)
        return env.convert(observation, mask) if isinstance(env, ControlEnv) else env.observation(observation)

    def decode(self, action: Any) -> Any:
        """The environment's action of a policy's."""
        return self._adapted.decode(action) if isinstance(self._adapted, ControlEnv) else action


def _all_numbers(space: spaces.Dict) -> bool:
    return all(
        _all_numbers(part) if isinstance(part, spaces.Dict) else isinstance(part, spaces.Box) and part.dtype != np.uint8
        for part in space.values()
    )


def state_sizes(observed: spaces.Space, acted: spaces.Space) -> dict[str, Any]:
    """Constructor arguments of a control policy for the spaces that `adapt` gives."""
    parts: Any = observed.spaces if isinstance(observed, spaces.Dict) else {STATE: observed}
    state, image = parts.get(STATE), parts.get(IMAGE)
    sizes: dict[str, Any] = {
        "observation_dims": None if state is None else int(state.shape[0]),
        "image_size": None if image is None else list(image.shape),
        "image_features": 0 if image is None else IMAGE_FEATURES,
        "action_mask": MASK in parts,
    }
    if isinstance(acted, spaces.Discrete):
        return {**sizes, "actions": int(acted.n), "kind": "categorical", "low": -1.0, "high": 1.0}
    if isinstance(acted, spaces.MultiDiscrete):
        counts = [int(n) for n in acted.nvec]
        return {**sizes, "actions": counts, "kind": "multi_categorical", "low": -1.0, "high": 1.0}
    box: Any = acted
    bounds = {"low": box.low.tolist(), "high": box.high.tolist()}
    return {**sizes, "actions": int(box.shape[0]), "kind": "gaussian", **bounds}


class ObservationReader:
    """Converts observations to numbers and an image.

    Args:
        space: of the observation.
        without_mask: leave out the entry "action_mask" of a dict.
    """

    def __init__(self, space: spaces.Space, without_mask: bool = False):
        self.numbers: list = []
        self.images: list = []
        for path, leaf in _leaves(space, ()):
            if without_mask and path == (MASK,):
                continue
            (self.images if is_image(leaf) else self.numbers).append((path, leaf))
        sides = {_arrange(np.empty(leaf.shape, np.uint8)).shape[:2] for _, leaf in self.images}
        if len(sides) > 1:
            raise SpaceError(f"the observations have images of {len(sides)} sizes, {sorted(sides)}; give them one size")
        if not self.numbers and not self.images:
            raise SpaceError(f"the observations {space} have no part that a policy can read")

    def parts(self) -> dict:
        """Spaces of the parts by name."""
        parts: dict = {}
        if self.numbers:
            size = sum(spaces.flatdim(leaf) for _, leaf in self.numbers)
            parts[STATE] = spaces.Box(-np.inf, np.inf, (size,), np.float32)
        if self.images:
            shapes = [_arrange(np.empty(leaf.shape, np.uint8)).shape for _, leaf in self.images]
            channels = sum(shape[2] for shape in shapes)
            parts[IMAGE] = spaces.Box(0, 255, (*shapes[0][:2], channels), np.uint8)
        return parts

    def read(self, observation: Any) -> dict:
        """The parts of one observation by name."""
        parts: dict = {}
        if self.numbers:
            rows = [np.ravel(_flatten(leaf, _pick(observation, path))) for path, leaf in self.numbers]
            parts[STATE] = np.concatenate(rows).astype(np.float32)
        if self.images:
            images = [_arrange(np.asarray(_pick(observation, path))) for path, _ in self.images]
            parts[IMAGE] = images[0] if len(images) == 1 else np.concatenate(images, axis=2)
        return parts


def is_image(space: spaces.Space) -> bool:
    """Whether a space is that of images: bytes [H, W], [H, W, C] or [C, H, W], or a stack of such, of some size."""
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8 or len(space.shape) not in (2, 3, 4):
        return False
    return min(_arrange(np.broadcast_to(np.uint8(0), space.shape)).shape[:2]) >= SMALLEST_IMAGE


def _arrange(image: np.ndarray) -> np.ndarray:
    """An image or a stack [k, ...] as [H, W, channels]; the shorter one of first and last axis is that of channels."""
    if image.ndim == 4:
        return np.concatenate([_arrange(each) for each in image], axis=2)
    if image.ndim == 2:
        return image[:, :, None]
    return np.moveaxis(image, 0, 2) if image.shape[0] < image.shape[2] else image


def _leaves(space: spaces.Space, path: tuple) -> list:
    if isinstance(space, spaces.Dict):
        return [leaf for name, part in space.spaces.items() for leaf in _leaves(part, (*path, name))]
    discrete = isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary))
    if discrete or (isinstance(space, spaces.Box) and space.dtype.kind in "fiub"):
        return [(path, space)]
    where = f"the observation {'/'.join(map(str, path))!r}" if path else "the observation"
    raise SpaceError(
        f"{where} is of the kind {type(space).__name__}: {space}; observations can be Box, Discrete, MultiDiscrete, "
        "MultiBinary or a Dict of them: convert it in a wrapper (gymnasium.ObservationWrapper)"
    )


def _pick(observation: Any, path: tuple) -> Any:
    for name in path:
        observation = observation[name]
    return observation


def _flatten(space: spaces.Space, value: Any) -> np.ndarray:
    """One-hot where numbers are names of something, as they are elsewhere."""
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        counts = np.ravel(getattr(space, "nvec", getattr(space, "n", 0)))
        numbers = np.ravel(np.asarray(value) - getattr(space, "start", 0)).astype(np.int64)
        if numbers.shape != counts.shape or (numbers < 0).any() or (numbers >= counts).any():
            raise ValueError(f"the observation {value!r:.60} is none of {space}")
        hot = np.zeros(int(counts.sum()), np.float32)
        hot[np.concatenate([[0], np.cumsum(counts)[:-1]]) + numbers] = 1
        return hot
    array = np.asarray(value)
    if array.shape != space.shape:
        raise ValueError(f"an observation has the shape {array.shape}, its space is {space}")
    return array
