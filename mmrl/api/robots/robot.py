"""What a robot is to `mmrl robot`: a class with `read` and `write`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class RobotFeedback:
    """What a robot knows about the episode after a command; a robot without sensors for it knows nothing.

    Args:
        reward: of the last command; None if there is none.
        terminated: the task is over, by success or failure.
        truncated: a time limit ended the episode.
        success: whether the task was solved so far; None if unknown.
        scores: further numbers, such as distances, for takeovers that look at them.
    """

    reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    success: bool | None = None
    scores: Mapping[str, float] | None = None

    @property
    def over(self) -> bool:
        return self.terminated or self.truncated


class Robot(ABC):
    """A robot with cameras, joints and a controller that takes one action per control step.

    A class of the user needs a constructor without arguments. `read` and `write` are called once in every control step
    and have to take much less time than one.
    """

    fps: float
    """Control steps per second."""
    action_dims: int
    """A, numbers of an action."""

    @abstractmethod
    def read(self) -> Mapping[str, Any]:
        """The present observation: images uint8 [H, W, 3], vectors float32 [D], and `instruction`, a text."""

    @abstractmethod
    def write(self, action: np.ndarray) -> None:
        """Give the controller an action, float32 [A], in the units of the policy's training data; does not block."""

    @abstractmethod
    def hold(self) -> np.ndarray:
        """The action [A] in which the robot stays as it is: it is played while there is none of the policy.

        Zeros where actions are displacements, the present position where they are positions.
        """

    def begin(self, seed: int) -> None:
        """Go to the start of an episode; a simulated robot has an initial state for every seed."""

    def feedback(self) -> RobotFeedback:
        """What is known after the last command. By default nothing: the episode ends after `max_steps`."""
        return RobotFeedback()

    def close(self) -> None:
        """Stop the motors and release the devices; it is called after errors too."""
