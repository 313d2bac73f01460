"""Reward models of single frames that are fitted to preferences between two of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from mmrl.core.rng import derive_rng, derive_seed
from mmrl.learners.phases.random_shift import crop_images
from mmrl.ops.preference import bradley_terry_loss
from mmrl.policies.control.encoder import PixelEncoder, perceptron


def frame_preference_loss(
    first: Tensor,  # [P] rewards of the first frames
    second: Tensor,  # [P]
    label: Tensor,  # [P] 0: the first is better, 1: the second
) -> Tensor:  # [P] nats
    """Cross-entropy of a label under Bradley-Terry, P(first > second) = sigmoid(r(first) - r(second))."""
    return bradley_terry_loss((first - second) * (1 - 2 * label))


class FrameRewardNetwork(nn.Module):
    """Reward r(o) in (-1, 1) of a frame: a convolutional network or, for a vector, a perceptron, then tanh.

    Args:
        shape: [H, W, C] of a picture of bytes, or [D] of a vector.
        features: width of the layer before the reward.
    """

    def __init__(self, shape: Sequence[int], features: int):
        super().__init__()
        pictures = len(shape) == 3
        layers = [*shape, features, features]
        self.body = PixelEncoder(tuple(shape), features) if pictures else perceptron(layers, nn.ReLU)
        self.head = nn.Linear(features, 1)

    def forward(self, frames: Tensor) -> Tensor:
        """Rewards [N] of frames [N, ...]."""
        return self.head(self.body(frames))[:, 0].tanh()


class RewardEnsemble(nn.Module):
    """Independent reward networks; the reward of a frame is their mean.

    Args:
        count: of networks.
        shape: of a frame.
        features: width of their last layer.
        seed: of their first weights.
    """

    def __init__(self, count: int, shape: Sequence[int], features: int, seed: int):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed("frame_reward", seed) % 2**63)
            self.members = nn.ModuleList(FrameRewardNetwork(shape, features) for _ in range(count))

    def forward(self, frames: Tensor) -> Tensor:
        """Mean rewards [N] of frames [N, ...]."""
        return torch.stack([member(frames) for member in self.members]).mean(0)

    @torch.no_grad()
    def score(self, frames: np.ndarray, batch_size: int = 1024) -> np.ndarray:
        """Rewards float32 [N] of frames [N, ...] in memory."""
        device = next(self.parameters()).device
        parts = [torch.from_numpy(frames[i : i + batch_size]).to(device) for i in range(0, len(frames), batch_size)]
        return torch.cat([self(part) for part in parts]).float().cpu().numpy()


def fit_rewards(
    ensemble: RewardEnsemble,
    first: np.ndarray,  # [P, ...] frames
    second: np.ndarray,
    labels: np.ndarray,  # int64 [P], 0 or 1
    passes: int,
    batch_size: int,
    lr: float,
    shift: int,
    seed: int,
) -> None:
    """Fit every network of an ensemble to the labels, each in an order of its own.

    Args:
        ensemble: trained in place with Adam.
        first: frames.
        second: frames.
        labels: 0 where the first is better, 1 where the second is.
        passes: over the pairs.
        batch_size: pairs of a step.
        lr: learning rate.
        shift: pixels by which pictures are randomly shifted (DrQ); 0 does not, and vectors are not.
        seed: of orders and shifts.
    """
    device = next(ensemble.parameters()).device
    frames = [torch.from_numpy(np.ascontiguousarray(side)) for side in (first, second)]
    target = torch.from_numpy(labels)
    for number, member in enumerate(ensemble.members):
        optimizer = torch.optim.Adam(member.parameters(), lr=lr)
        rng = derive_rng("frame_reward", "order", seed, number)
        for _ in range(passes):
            order = torch.from_numpy(rng.permutation(len(target)))
            for rows in order.split(batch_size):
                sides = [_shift(side[rows], shift, rng).to(device) for side in frames]
                rewards = member(torch.cat(sides))  # both sides in one pass
                loss = frame_preference_loss(*rewards.chunk(2), target[rows].to(device)).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()


def _shift(frames: Tensor, pixels: int, rng: np.random.Generator) -> Tensor:
    if not pixels or frames.ndim != 4:
        return frames
    return crop_images(frames, torch.from_numpy(rng.integers(2 * pixels + 1, size=(len(frames), 2))), pixels)
