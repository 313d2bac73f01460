"""Layers of control policies: the encoder of observations, and the multilayer perceptron after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from mmrl.policies.base import Policy, require_inputs
from mmrl.types import Observation


class ObservationEncoder(nn.Module):
    """Encode observations as features [N, F]: the state vector as it is, then a convolutional network's of the image.

    Args:
        observation_dims: length of the state vector; None without one.
        state: name of the observation that holds it.
        image_size: pixels a side of the observation "image", uint8 [S, S, 3]; None without one.
        image_features: width of the features that are computed from the image.
    """

    def __init__(self, observation_dims: int | None, state: str, image_size: int | None, image_features: int):
        super().__init__()
        if not observation_dims and not image_size:
            raise ValueError("the policy has no observation to read: set policy.observation_dims or policy.image_size")
        self.observation_dims, self.state, self.image_size = observation_dims, state, image_size
        self.image = None if image_size is None else PixelEncoder(image_size, image_features)
        self.width = (observation_dims or 0) + (image_features if image_size else 0)

    def forward(self, observation: Mapping[str, Tensor]) -> Tensor:
        parts = [observation["state"]] if self.observation_dims else []
        if self.image is not None:
            parts.append(self.image(observation["image"]))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    def encode_batch(self, raw: Mapping[str, Any], owner: Policy) -> dict[str, Tensor]:
        """Convert the inputs of n environments [n, ...], as copies, because the simulator may reuse its buffer."""
        require_inputs(
            raw, [*([self.state] if self.observation_dims else []), *(["image"] if self.image_size else [])], owner
        )
        out: dict[str, Tensor] = {}
        if self.observation_dims:
            out["state"] = torch.from_numpy(np.array(raw[self.state], dtype=np.float32))
            _same(self.state, out["state"][0], (self.observation_dims,), "policy.observation_dims")
        if self.image_size:
            out["image"] = torch.from_numpy(np.array(raw["image"]))
            _same("image", out["image"][0], (self.image_size, self.image_size, 3), "policy.image_size")
        return out

    def check_space(self, space: Space) -> None:
        """Refuse a simulator that lacks these observations."""
        given = space.spaces if isinstance(space, spaces.Dict) else {"state": space}
        wanted: dict[str, tuple[int, ...]] = {self.state: (self.observation_dims,)} if self.observation_dims else {}
        wanted |= {"image": (self.image_size, self.image_size, 3)} if self.image_size else {}
        for name, shape in wanted.items():
            if name not in given or given[name].shape != shape:
                raise ValueError(f"the policy reads observation {name!r} of shape {shape}, the simulator gives {space}")


def encode_single(raw: Mapping[str, Any], policy: Policy) -> Observation:
    """Encode one observation as the only row of a batch."""
    encoded: Any = policy.encode_batch({name: np.asarray(part)[None] for name, part in raw.items()})
    return {name: column[0] for name, column in encoded.items()}


class PixelEncoder(nn.Module):
    """Four convolutions of 32 channels, then one linear layer with normalisation and tanh.

    Source: Image Augmentation Is All You Need, 2020, appendix B, arXiv:2004.13649.

    Args:
        size: pixels a side.
        features: width of the output.
    """

    def __init__(self, size: int, features: int):
        super().__init__()
        layers: list[nn.Module] = []
        for i, (a, b) in enumerate(pairwise([3, 32, 32, 32, 32])):
            layers += [nn.Conv2d(a, b, 3, stride=2 if i == 0 else 1), nn.ReLU()]
        self.convolutions = nn.Sequential(*layers)
        side = (size - 3) // 2 + 1 - 6
        if side < 1:
            raise ValueError(f"policy.image_size must be at least 17 for four convolutions, got {size}")
        self.out = nn.Sequential(nn.Linear(32 * side * side, features), nn.LayerNorm(features), nn.Tanh())

    def forward(self, image: Tensor) -> Tensor:
        """Encode images uint8 [N, S, S, 3] to [N, F]."""
        pixels = image.movedim(-1, 1).to(self.out[0].weight.dtype) / 255 - 0.5  # type: ignore[arg-type]
        return self.out(self.convolutions(pixels).flatten(1))


def _same(name: str, value: Tensor, shape: tuple[int, ...], word: str) -> None:
    if value.shape != shape:
        raise ValueError(f"{word}: observation {name!r} has shape {tuple(value.shape)}, the policy reads {shape}")


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
