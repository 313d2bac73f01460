"""Observations and actions of a policy, as LeRobot names them in config.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

STATE, ACTION = "observation.state", "action"


@dataclass(frozen=True)
class Features:
    """Shapes of what a policy reads and returns.

    Args:
        images: names of the image features, in the order in which the network reads them.
        image_size: height and width of every image, pixels.
        state_dims: P, length of the proprioception vector.
        action_dims: A, numbers per control step.
    """

    images: tuple[str, ...]
    image_size: tuple[int, int]
    state_dims: int
    action_dims: int

    @classmethod
    def of(cls, cameras: Sequence[str], image_size: Sequence[int] | int, state_dims: int, action_dims: int) -> Features:
        """Build those of a new policy; `image_size` is one number for square images."""
        size = (image_size, image_size) if isinstance(image_size, int) else tuple(image_size)
        return cls(tuple(f"observation.images.{name}" for name in cameras), size, state_dims, action_dims)  # type: ignore[arg-type]

    @classmethod
    def read(cls, config: Mapping[str, Any], place: str) -> Features:
        """Read them from the content of config.json.

        Raises:
            ValueError: the policy reads something else than images and a state, or images of several sizes.
        """
        inputs: dict[str, Any] = dict(config.get("input_features") or {})
        images = {name: part["shape"] for name, part in inputs.items() if part.get("type") == "VISUAL"}
        others = sorted(set(inputs) - set(images) - {STATE})
        output = (config.get("output_features") or {}).get(ACTION)
        if others or STATE not in inputs or not images or output is None:
            raise ValueError(
                f"{place}: the policy reads {sorted(inputs)}; mmrl computes policies that read images and {STATE}, and "
                f"return {ACTION!r}"
            )
        shapes = {tuple(shape) for shape in images.values()}
        if len(shapes) > 1 or next(iter(shapes))[0] != 3:
            raise ValueError(f"{place}: images have shapes {sorted(shapes)}; mmrl needs one shape [3, H, W] for all")
        height, width = next(iter(shapes))[1:]
        return cls(tuple(images), (height, width), inputs[STATE]["shape"][0], output["shape"][0])

    def to_json(self) -> dict[str, Any]:
        """Return the entries input_features and output_features of config.json."""
        images = {name: {"type": "VISUAL", "shape": [3, *self.image_size]} for name in self.images}
        return {
            "input_features": {STATE: {"type": "STATE", "shape": [self.state_dims]}, **images},
            "output_features": {ACTION: {"type": "ACTION", "shape": [self.action_dims]}},
        }

    def check(self, cameras: Sequence[str], state_dims: int, action_dims: int, place: str) -> None:
        """Refuse a simulator whose cameras, proprioception or actions are not those of the checkpoint."""
        for word, size, checkpoint_size in (
            ("number of cameras", len(cameras), len(self.images)),
            ("proprio_dims", state_dims, self.state_dims),
            ("action_dims", action_dims, self.action_dims),
        ):
            if size != checkpoint_size:
                raise ValueError(
                    f"{place}: the checkpoint's {word} is {checkpoint_size}, but the policy is given {size}; take a "
                    "simulator that fits, or policy.cameras, policy.proprio_dims and policy.action_dims of the "
                    "checkpoint"
                )
