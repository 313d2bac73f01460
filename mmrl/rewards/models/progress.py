"""VLAC progress reward: signed task progress between two frames, by a frozen critic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from mmrl.core.errors import check_interval
from mmrl.core.rng import Noise
from mmrl.core.types import Sampling
from mmrl.rewards.models.frames import FrameReward


class PairProgress(FrameReward):
    """Predict the signed progress c in [-1, 1] between two images, as a fraction of the remaining way.

    Shares of what remains do not add up: from v, a share c leads to v + (1 - v) c.
    Source: Zhai et al., "A Vision-Language-Action-Critic Model", arXiv 2509.15937, section 3.

    Args:
        critic: policy that answers {"image": the two images side by side, "proprio": zeros, "instruction"} with
            one number; `recipe=progress` trains one.
        scale: factor of the reward.
        dead_zone: shares of at most this size count as none.
        batch_size: pairs per forward pass.
    """

    def __init__(self, critic: Any, scale: float = 1.0, dead_zone: float = 0.0, batch_size: int = 64):
        check_interval("reward", "[0, 1)", dead_zone=dead_zone)
        self.critic = critic.requires_grad_(False).eval()
        self.scale, self.dead_zone, self.batch_size = scale, dead_zone, batch_size

    def __call__(self, before: np.ndarray, after: np.ndarray, instructions: Sequence[str]) -> np.ndarray:
        pairs = concat_images(before, after)
        parts = [slice(i, i + self.batch_size) for i in range(0, len(pairs), self.batch_size)]
        shares = np.concatenate([self._shares(pairs[part], instructions[part]) for part in parts])
        return self.scale * np.where(np.abs(shares) > self.dead_zone, shares, 0.0)

    @torch.no_grad()
    def _shares(self, pairs: np.ndarray, instructions: Sequence[str]) -> np.ndarray:
        nothing = np.zeros(self.critic.proprio_dims, np.float32)
        rows = [
            self.critic.encode({"image": pair, "proprio": nothing, "instruction": text})
            for pair, text in zip(pairs, instructions)
        ]
        inputs = {name: column.to(self.critic.device) for name, column in self.critic.collate(rows).items()}
        judged = self.critic.act(inputs, Sampling(decode="mean"), Noise([0] * len(rows)))  # nothing is drawn
        return np.array([float(np.ravel(output)[0]) for output in judged.output])


def concat_images(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Concatenate two images: uint8 [n, H, 2 W, 3], the earlier on the left."""
    return np.concatenate([before, after], axis=2)


def remaining_share(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Relative progress c with end = start + (1 - start) c, for progress in [0, 1]; antisymmetric in start and end.

    Nothing remains at the end: c is 0 between two finished moments.
    """
    early, late = np.minimum(start, end), np.maximum(start, end)
    share = np.divide(late - early, 1 - early, out=np.zeros_like(late), where=early < 1)
    return np.sign(end - start) * share
