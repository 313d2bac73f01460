"""Reward models on images: the reward of a decision from the frames before and after it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np


class FrameReward(ABC):
    """One number per decision, from images and the instruction alone."""

    @abstractmethod
    def __call__(self, before: np.ndarray, after: np.ndarray, instructions: Sequence[str]) -> np.ndarray:
        """Reward [n] of images uint8 [n, H, W, 3] taken when the decision was made and when it had been played."""
