"""Layers of control policies: the encoder of observations, and the multilayer perceptron after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from mmrl.core.batch import Batch
from mmrl.core.types import Observation
from mmrl.policies.base import Policy, require_inputs
from mmrl.policies.control.running_statistics import RunningStatistics


class ObservationEncoder(nn.Module):
    """Encode observations as features [N, F]: the state vector, then a convolutional network's of the image.

    Args:
        observation_dims: length of the state vector; None without one.
        state: name of the observation that holds it.
        image_size: of the observation "image", uint8: S for [S, S, 3], or [H, W, C]; None without one.
        image_features: width of the features that are computed from the image.
        normalize: bring the state vector to mean 0 and variance 1 (`RunningStatistics`); otherwise it is as it is.
    """

    renamed_weights: ClassVar[Mapping[str, str]] = {"image": "image_encoder"}

    def __init__(
        self,
        observation_dims: int | None,
        state: str,
        image_size: int | Sequence[int] | None,
        image_features: int,
        normalize: bool = False,
    ):
        super().__init__()
        if not observation_dims and not image_size:
            raise ValueError("the policy has no observation to read: set policy.observation_dims or policy.image_size")
        if image_size is not None and image_features < 1:
            raise ValueError(f"policy.image_features must be at least 1, got {image_features}")
        self.observation_dims, self.state, self.image_shape = observation_dims, state, read_image_shape(image_size)
        self.image_encoder = None if self.image_shape is None else PixelEncoder(self.image_shape, image_features)
        self.statistics = RunningStatistics(observation_dims) if normalize and observation_dims else None
        self.width = (observation_dims or 0) + (image_features if image_size else 0)

    def count_rows(self, batch: Batch, total: Callable[[Tensor], Tensor]) -> None:
        """Note the states of an iteration's rows for the running statistics, if there are any."""
        if self.statistics is not None:
            none = torch.zeros(0, self.statistics.mean.numel())  # of a rank without rows
            self.statistics.count_rows(batch.get("obs.state", none), total)

    def include_rows(self) -> None:
        """Let the running statistics include the states that were noted."""
        if self.statistics is not None:
            self.statistics.include_rows()

    def forward(self, observation: Mapping[str, Tensor]) -> Tensor:
        parts = [observation["state"]] if self.observation_dims else []
        if self.statistics is not None:
            parts = [self.statistics(parts[0])]
        if self.image_encoder is not None:
            parts.append(self.image_encoder(observation["image"]))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    def encode_batch(self, raw: Mapping[str, Any], owner: Policy) -> dict[str, Tensor]:
        """Convert the inputs of n environments [n, ...], as copies, because the simulator may reuse its buffer."""
        require_inputs(
            raw, [*([self.state] if self.observation_dims else []), *(["image"] if self.image_shape else [])], owner
        )
        out: dict[str, Tensor] = {}
        if self.observation_dims:
            out["state"] = torch.from_numpy(np.array(raw[self.state], dtype=np.float32))
            _same(self.state, out["state"][0], (self.observation_dims,), "policy.observation_dims")
        if self.image_shape:
            out["image"] = torch.from_numpy(np.array(raw["image"]))
            _same("image", out["image"][0], self.image_shape, "policy.image_size")
        return out

    def check_space(self, space: Space) -> None:
        """Refuse a simulator that lacks these observations."""
        entries = space.spaces if isinstance(space, spaces.Dict) else {"state": space}
        shapes: dict[str, tuple[int, ...]] = {self.state: (self.observation_dims,)} if self.observation_dims else {}
        shapes |= {"image": self.image_shape} if self.image_shape else {}
        for name, shape in shapes.items():
            if not isinstance(entries.get(name), spaces.Box) or entries[name].shape != shape:
                raise ValueError(
                    f"the policy reads observation {name!r} of shape {shape} (policy.observation_dims="
                    f"{self.observation_dims}, policy.image_size={self.image_shape}), but the simulator's observations "
                    f"are {space}"
                )


def encode_single(raw: Mapping[str, Any], policy: Policy) -> Observation:
    """Encode one observation as the only row of a batch."""
    encoded: Any = policy.encode_batch({name: np.asarray(part)[None] for name, part in raw.items()})
    return {name: column[0] for name, column in encoded.items()}


class PixelEncoder(nn.Module):
    """Four convolutions of 32 channels, then one linear layer with normalisation and tanh.

    Source: Image Augmentation Is All You Need, 2020, appendix B, arXiv:2004.13649.

    Args:
        shape: H, W, C of an image.
        features: width of the output.
    """

    renamed_weights: ClassVar[Mapping[str, str]] = {"convolutions": "convs", "out": "head"}

    def __init__(self, shape: tuple[int, int, int], features: int):
        super().__init__()
        layers: list[nn.Module] = []
        for i, (a, b) in enumerate(pairwise([shape[2], 32, 32, 32, 32])):
            layers += [nn.Conv2d(a, b, 3, stride=2 if i == 0 else 1), nn.ReLU()]
        self.convs = nn.Sequential(*layers)
        height, width = ((size - 3) // 2 + 1 - 6 for size in shape[:2])
        if min(height, width) < 1:
            raise ValueError(f"policy.image_size must be at least 17 for four convolutions, got {min(shape[:2])}")
        self.head = nn.Sequential(nn.Linear(32 * height * width, features), nn.LayerNorm(features), nn.Tanh())

    def forward(self, image: Tensor) -> Tensor:
        """Encode images uint8 [N, H, W, C] to [N, F]."""
        pixels = image.movedim(-1, 1).to(self.head[0].weight.dtype) / 255 - 0.5  # type: ignore[arg-type]
        return self.head(self.convs(pixels).flatten(1))


def read_image_shape(size: int | Sequence[int] | None) -> tuple[int, int, int] | None:
    """H, W, C of an option policy.image_size: S for [S, S, 3], or all three."""
    if size is None:
        return None
    height, width, channels = (size, size, 3) if isinstance(size, int) else size if len(size) == 3 else (0, 0, 0)
    if min(height, width, channels) < 1:
        raise ValueError(f"policy.image_size must be a number of pixels or [height, width, channels], got {size}")
    return height, width, channels


def _same(name: str, value: Tensor, shape: tuple[int, ...], word: str) -> None:
    if value.shape != shape:
        size = shape[0] if len(shape) == 1 else list(shape)
        raise ValueError(
            f"{word}={size}: observation {name!r} has shape {tuple(value.shape)}, the policy reads {shape}"
        )


class Perceptron(nn.Sequential):
    """Sequential layers without torch's hooks: checking for hooks takes as long as the arithmetic of small networks."""

    def forward(self, x: Tensor) -> Tensor:
        for layer in self._modules.values():
            x = layer.forward(x)
        return x


def perceptron(sizes: Sequence[int], activation: type[nn.Module]) -> Perceptron:
    """Build linear layers of these widths with the activation after each."""
    if any(size < 1 for size in sizes):
        raise ValueError(f"policy.hidden: every layer's width must be at least 1, got {list(sizes)[1:]}")
    layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), activation())]
    return Perceptron(*layers)
