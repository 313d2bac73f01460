"""Wrapper that gives a gymnasium environment the interface of vision-language-action policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from PIL import Image

_TEXT = spaces.Text(max_length=1000, charset=frozenset(map(chr, range(32, 127))))


class VLAWrapper(gymnasium.Wrapper):
    """Observations {"image" uint8 [size, size, 3 * frames], "proprio" float32 [P], "instruction"}; actions [chunk, A].

    A decision is played open loop, control step by control step, and stops where the episode ends; its rewards are
    summed. The image is taken once a decision. A box of actions is scaled from [-1, 1]; n numbered actions are n
    equal intervals of [-1, 1]. `info`: "executed" control steps of the decision, and "scores": success, which is
    whether the environment ever reported it ("is_success" or "success"; without one, whether the episode terminated
    with a reward above zero).

    Args:
        env: with an image in its observations, or render_mode="rgb_array".
        instruction: given to the policy; None takes the "mission" of the observation.
        image_size: pixels a side of the image, which is scaled by area.
        chunk: control steps per decision.
        frames: how many images, one decision apart, are stacked as channels, the newest last.
        end_on_success: the episode terminates at the first success; otherwise it goes on to its own end.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        instruction: str | None,
        image_size: int,
        chunk: int,
        frames: int = 1,
        end_on_success: bool = True,
    ):
        super().__init__(env)
        self.instruction, self.image_size, self.chunk = instruction, image_size, chunk
        self.frames, self.end_on_success = frames, end_on_success
        self._images: list[np.ndarray] = []
        self._instruction, self._success, self._seen = "", False, None
        parts = _parts(env.observation_space)
        if instruction is None and "mission" not in parts:
            raise ValueError(f"{env} has no mission in its observations: give sim.instruction")
        self._numbers = [name for name, part in parts.items() if name != "image" and _size(part) is not None]
        length = max(sum(_size(parts[name]) or 0 for name in self._numbers), 1)  # one zero where there is nothing
        shape = (image_size, image_size, 3 * frames)
        self.observation_space = spaces.Dict(
            {
                "image": spaces.Box(0, 255, shape, np.uint8),
                "proprio": spaces.Box(-np.inf, np.inf, (length,), np.float32),
                "instruction": _TEXT,
            }
        )
        self.action_space = spaces.Box(-1, 1, (chunk, _action_dims(env)), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._seen, info = self.env.reset(seed=seed, options=options)
        self._images, self._success = [], False
        self._instruction = self.instruction or str(self._seen["mission"])  # type: ignore[index]
        return self._observation(), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        chunk = np.asarray(action, np.float64)
        if chunk.shape != self.action_space.shape:
            raise ValueError(f"actions must be {self.action_space.shape}, got {chunk.shape}")
        total, executed, terminated, truncated = 0.0, 0, False, False
        info: dict[str, Any] = {}
        while executed < self.chunk and not (terminated or truncated):
            self._seen, reward, terminated, truncated, info = self.env.step(self._decode_action(chunk[executed]))
            total, executed = total + float(reward), executed + 1
            self._success |= _is_success(info, bool(terminated), float(reward))
            terminated = bool(terminated) or (self._success and self.end_on_success)
        report = {"executed": executed, "scores": {"success": float(self._success)}}
        return self._observation(), total, terminated, bool(truncated), info | report

    def _decode_action(self, row: np.ndarray) -> Any:
        """Map numbers in [-1, 1] to the environment's action space."""
        row, space = np.clip(row, -1, 1), self.env.action_space
        if isinstance(space, spaces.Discrete):
            return int(space.start) + min(int((row[0] + 1) / 2 * int(space.n)), int(space.n) - 1)
        low, high = space.low, space.high  # type: ignore[attr-defined]
        values = low + (row + 1) / 2 * (high - low)
        return (np.rint(values) if space.dtype.kind in "iub" else values).astype(space.dtype)  # type: ignore[union-attr]

    def _observation(self) -> dict[str, Any]:
        image = self._scaled_image()
        self._images = [*(self._images or [image] * self.frames), image][-self.frames :]
        parts = self._seen if isinstance(self._seen, Mapping) else {"state": self._seen}
        numbers = [np.ravel(np.asarray(parts[name], np.float32)) for name in self._numbers]
        return {
            "image": np.concatenate(self._images, axis=2),
            "proprio": np.concatenate(numbers) if numbers else np.zeros(1, np.float32),
            "instruction": self._instruction,
        }

    def _scaled_image(self) -> np.ndarray:
        image = self._seen["image"] if isinstance(self._seen, Mapping) and "image" in self._seen else self._image()
        if image.shape[:2] != (self.image_size, self.image_size):
            size = (self.image_size, self.image_size)
            image = np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BOX))
        return image

    def _image(self) -> np.ndarray:
        if _is_image(self._seen):
            return self._seen  # type: ignore[return-value]
        image = self.env.render()
        if not _is_image(image):
            raise ValueError(f"{self.env} shows no image: make it with sim.kwargs={{render_mode: rgb_array}}")
        return np.asarray(image)


def _parts(space: gymnasium.Space) -> dict[str, gymnasium.Space]:
    if isinstance(space, spaces.Dict):
        return dict(space.spaces)
    image = isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3
    return {"image" if image else "state": space}


def _is_image(seen: Any) -> bool:
    return isinstance(seen, np.ndarray) and seen.dtype == np.uint8 and seen.ndim == 3


def _size(space: gymnasium.Space) -> int | None:
    """Number of proprioception entries of one part of the observation; None for text.

    Raises:
        ValueError: the part is neither numbers nor text.
    """
    if isinstance(space, spaces.Discrete):
        return 1
    if isinstance(space, (spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)):
        return int(np.prod(space.shape))
    if isinstance(space, (spaces.Dict, spaces.Tuple, spaces.Sequence, spaces.Graph, spaces.OneOf)):
        raise ValueError(
            f"a part of the observation is of the kind {type(space).__name__}: {space}; flatten it in a wrapper "
            "(gymnasium.ObservationWrapper)"
        )
    return None


def _action_dims(env: gymnasium.Env) -> int:
    space = env.action_space
    if isinstance(space, spaces.Discrete):
        return 1
    if isinstance(space, spaces.Box) and len(space.shape) == 1 and np.isfinite([space.low, space.high]).all():
        return int(space.shape[0])
    raise ValueError(f"{env} takes {space}; a chunk of actions needs numbered actions or a bounded vector")


def _is_success(info: Mapping[str, Any], terminated: bool, reward: float) -> bool:
    for name in ("is_success", "success"):
        if name in info:
            return bool(info[name])
    return terminated and reward > 0
