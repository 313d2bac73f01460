"""What a task adds to the scene: the things on the table, how an episode starts, and when it is over."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from sims.tabletop.scene import Cube


@dataclass(frozen=True)
class Start:
    """The initial state of one world."""

    objects: np.ndarray  # [K, 3] centres of the things, metres
    joints: np.ndarray  # [7] offsets from the home posture, rad
    goal: int  # index of the thing that the instruction names
    instruction: str


class TabletopTask(ABC):
    """Task logic only: no simulator handle, so the same vector machinery runs every task."""

    name: str
    events: tuple[str, ...]
    """What can end an episode; "success" pays one, the others are failures."""

    @property
    @abstractmethod
    def things(self) -> tuple[Cube, ...]:
        """What lies on the table, in the order of `Start.objects`."""

    @abstractmethod
    def start(self, rng: np.random.Generator) -> Start: ...

    @abstractmethod
    def judge(self, tip: np.ndarray, objects: np.ndarray, goal: np.ndarray) -> dict[str, np.ndarray]:
        """For every event a bool [n]: tip [n, 3] and objects [n, K, 3] in metres, goal [n]."""
