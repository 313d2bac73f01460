"""Encoder and decoder of observations for world models: strided convolutions, and their transposes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from mmrl.policies.control.encoder import ObservationEncoder, perceptron, read_image_shape

_LARGEST = 7  # side of the last feature map, pixels


def scale_pixels(image: Tensor) -> Tensor:
    """Images uint8 [N, H, W, C] as reals [N, C, H, W] in [-0.5, 0.5]."""
    return image.movedim(-1, 1).float() / 255 - 0.5


def count_levels(shape: Sequence[int]) -> int:
    """Number of convolutions that halve an image of H, W, C until its sides are at most 7 pixels."""
    levels, (height, width) = 0, shape[:2]
    while max(height, width) > _LARGEST:
        if height % 2 or width % 2 or min(height, width) < 4:
            raise ValueError(
                f"policy.image_size={list(shape)}: a world model halves images until their sides are at most "
                f"{_LARGEST} pixels; take sides such as 16, 20, 24, 32 or 64"
            )
        height, width, levels = height // 2, width // 2, levels + 1
    if not levels:
        raise ValueError(f"policy.image_size={list(shape)}: a world model needs images of at least 8 pixels a side")
    return levels


class StridedEncoder(nn.Module):
    """Convolutions of 4 x 4 pixels and stride 2 with exponential linear units, each with twice the channels.

    Source: as in World Models, 2018, appendix A.1, arXiv:1803.10122, with padding.

    Args:
        shape: H, W, C of an image.
        depth: channels of the first layer.
    """

    def __init__(self, shape: Sequence[int], depth: int):
        super().__init__()
        levels = count_levels(shape)
        channels = [shape[2], *(depth * 2**level for level in range(levels))]
        layers = [part for a, b in pairwise(channels) for part in (nn.Conv2d(a, b, 4, stride=2, padding=1), nn.ELU())]
        self.convs = nn.Sequential(*layers)
        self.width = channels[-1] * (shape[0] >> levels) * (shape[1] >> levels)

    def forward(self, image: Tensor) -> Tensor:
        """Encode images uint8 [N, H, W, C] to [N, F]."""
        return self.convs(scale_pixels(image)).flatten(1)


class WorldModelEncoder(ObservationEncoder):
    """Embed observations [N, E]: the state vector as it is, then the features of strided convolutions of the image.

    Args:
        observation_dims: length of the state vector; None without one.
        state: name of the observation that holds it.
        image_size: of the observation "image", uint8: S for [S, S, 3], or [H, W, C]; None without one.
        depth: channels of the first convolution.
    """

    def __init__(self, observation_dims: int | None, state: str, image_size: int | Sequence[int] | None, depth: int):
        nn.Module.__init__(self)  # layers are others than those of the base class
        if not observation_dims and not image_size:
            raise ValueError("the policy has no observation to read: set policy.observation_dims or policy.image_size")
        self.observation_dims, self.state, self.image_shape = observation_dims, state, read_image_shape(image_size)
        self.image_encoder = None if self.image_shape is None else StridedEncoder(self.image_shape, depth)
        self.statistics = None
        self.width = (observation_dims or 0) + (self.image_encoder.width if self.image_encoder else 0)


class ObservationDecoder(nn.Module):
    """Reconstruct observations from latent states: means of Gaussians of variance 1.

    Args:
        features: F, width of belief and state, or of its parts.
        observation_dims: length of the state vector; None without one.
        image_size: S for images [S, S, 3], or [H, W, C]; None without one.
        depth: channels before the last transposed convolution.
        hidden: widths of the hidden layers before the state vector.
    """

    def __init__(
        self,
        features: int | list[int],
        observation_dims: int | None = None,
        image_size: int | list[int] | None = None,
        depth: int = 32,
        hidden: Sequence[int] = (200,),
    ):
        super().__init__()
        width = features if isinstance(features, int) else sum(features)
        if not observation_dims and not image_size:
            raise ValueError("the decoder has nothing to reconstruct: set its observation_dims or its image_size")
        self.state_net = None
        if observation_dims:
            self.state_net = nn.Sequential(
                *perceptron([width, *hidden], nn.ELU), nn.Linear(hidden[-1], observation_dims)
            )
        self.image_in, self.deconvs = None, None
        if (shape := read_image_shape(image_size)) is not None:
            levels = count_levels(shape)
            channels = [*(depth * 2**level for level in reversed(range(levels))), shape[2]]
            self.sides = (channels[0], shape[0] >> levels, shape[1] >> levels)
            self.image_in = nn.Linear(width, channels[0] * self.sides[1] * self.sides[2])
            layers: list[nn.Module] = []
            for a, b in pairwise(channels):
                layers += [nn.ELU(), nn.ConvTranspose2d(a, b, 4, stride=2, padding=1)]
            self.deconvs = nn.Sequential(*layers)

    def forward(self, features: Tensor) -> dict[str, Tensor]:
        """Means of the state vector [N, dims] and of the image [N, C, H, W] in [-0.5, 0.5], given features [N, F]."""
        means = {} if self.state_net is None else {"state": self.state_net(features)}
        if self.image_in is not None and self.deconvs is not None:
            means["image"] = self.deconvs(self.image_in(features).view(-1, *self.sides))
        return means

    def error(self, features: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """-log N(observation; mean, 1) [N] in nats without its constant: half the sum of squared errors."""
        targets = {name: observation[name] for name in ("state", "image") if name in observation}
        if "image" in targets:
            targets["image"] = scale_pixels(targets["image"])
        means = self(features)
        errors = [(means[name] - targets[name]).square().flatten(1).sum(1) for name in means]
        return 0.5 * torch.stack(errors).sum(0)
