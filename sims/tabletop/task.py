"""Interface of a task: things on the table, initial states, events and dense terms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sims.render import Look
from sims.tabletop.things import SceneObject

Grip = Literal["open", "closed", "free"]
"""Fingers that stay open, stay closed (one blunt tool), or follow the fourth action dimension."""


@dataclass(frozen=True)
class Start:
    """Initial state of one environment."""

    objects: np.ndarray  # [K, 3] centres of the things, metres
    joints: np.ndarray  # [7] offsets from the home posture, rad
    named: tuple[int, ...]  # indices of the things that the instruction names, in the order in which to act on them
    instruction: str
    yaw: np.ndarray | None = None  # [K] turn of the things about the vertical, rad; None: none
    dynamics: tuple[float, float, float] = (1.0, 1.0, 1.0)  # factors of the things' mass and friction, the arm's gains
    appearance: Look | None = None  # how this environment looks; None: as the scene says


def length(way: np.ndarray) -> np.ndarray:
    """Euclidean norm over the last axis, [...]: `np.linalg.norm` takes twice as long for a few numbers."""
    return np.sqrt(np.add.reduce(way * way, axis=-1))


@dataclass(frozen=True)
class TabletopState:
    """State of n environments for the rules of a task: current, initial, and the task's memory."""

    tip: np.ndarray  # [n, 3] the point between the fingertips, metres
    gap: np.ndarray  # [n] opening between the fingers, metres
    objects: np.ndarray  # [n, K, 3] centres of the things, metres
    turns: np.ndarray  # [n, K, 3, 3] their rotations
    travel: np.ndarray  # [n, K] of a thing's own joint (drawer, button) from rest, metres; 0 for things without
    origin: np.ndarray  # [n, K, 3] centres at the start, metres
    named: np.ndarray  # [n, M] indices of the named things, in the order in which to act on them
    memory: np.ndarray  # [n, R] what the task's `remember` returned last; zeros at the start

    def thing(self, place: int) -> np.ndarray:
        """Centres of the things named in this place of the order, [n, 3] metres."""
        return self.objects[np.arange(len(self.named)), self.named[:, place]]

    def displacement(self) -> np.ndarray:
        """Horizontal distance of every thing from its start, [n, K] metres."""
        return length(self.objects[:, :, :2] - self.origin[:, :, :2])

    def is_named(self, *places: int) -> np.ndarray:
        """Whether each thing is named in one of these places, bool [n, K]."""
        first, *others = (self.named[:, place, None] == np.arange(self.objects.shape[1]) for place in places)
        for other in others:
            first |= other
        return first


class TabletopTask(ABC):
    """Rules of a task, without a simulator handle."""

    name: str
    events: tuple[str, ...]
    """What can end an episode; "success" pays one, the others are failures."""
    terms: tuple[str, ...] = ()
    """Names of the dense terms, with their units."""
    grip: Grip = "closed"
    memory: int = 0
    """R, how many numbers are remembered per environment."""
    timestep: float = 0.01
    """Of the physics, seconds; a whole number of steps makes a control step."""
    floor_m: float = 0.02
    """The set-point stays above this height."""

    @property
    @abstractmethod
    def things(self) -> tuple[SceneObject, ...]:
        """Things on the table, in the order of `Start.objects`."""

    @abstractmethod
    def start(self, rng: np.random.Generator, templates: Sequence[str]) -> Start:
        """Draw an initial state, with a filled-in instruction template."""

    def remember(self, state: TabletopState) -> np.ndarray:
        """Update the memory [n, R]; called before `judge` at every control step."""
        return state.memory

    def strict(self) -> TabletopTask:
        """The same task with a stricter success criterion, for demonstrations."""
        return self

    @abstractmethod
    def judge(self, state: TabletopState) -> dict[str, np.ndarray]:
        """Events of the current state, bool [n] each."""

    def measure(self, state: TabletopState) -> dict[str, np.ndarray]:
        """Dense terms of the current state, float [n] each."""
        return {}
