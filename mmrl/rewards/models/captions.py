"""Captioned pictures of a simulator's scenes, from which encoders of pictures and sentences learn."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np


class SceneCaptions(ABC):
    """Base class of captioned scenes of one simulator."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, list[str]]:
        """Return pictures uint8 [count, S, S, 3] of drawn scenes and a sentence about each."""

    @abstractmethod
    def goal_of(self, instruction: str) -> str:
        """Return the sentence about the state in which an instruction is followed."""
