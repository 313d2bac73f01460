"""Reward models on images: the reward of a decision from the frames before and after it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np


class FrameReward(ABC):
    """Base class of reward models on images: one reward per decision, from two images and the instruction."""

    @abstractmethod
    def __call__(self, before: np.ndarray, after: np.ndarray, instructions: Sequence[str]) -> np.ndarray:
        """Return rewards [n] for images uint8 [n, H, W, 3] before and after each decision."""
