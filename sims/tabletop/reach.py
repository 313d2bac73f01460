"""Reach the cube that the instruction names, and no other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sims.tabletop.scene import CUBE_HALF_M, Cube
from sims.tabletop.task import Start, TabletopTask

HOVER_M = 0.06  # the point to reach lies this far above a cube's centre
PLACES = np.array([[0.36, -0.24], [0.62, 0.24]])  # metres; where cube centres may lie, x and y
APART_M = 0.13  # least distance between two cubes
_JOINT_NOISE = 0.05  # rad
_TRIES = 10_000


@dataclass(frozen=True)
class ReachTask(TabletopTask):
    """Success: the tip comes within `radius_m` of the point above the named cube. Any other cube's ball fails.

    Args:
        colours: of the cubes; names of `sims.tabletop.scene.COLOURS`.
        templates: of the instruction; one is drawn per episode, "{colour}" is replaced.
        radius_m: of the ball to reach, metres.
    """

    colours: tuple[str, ...]
    templates: tuple[str, ...]
    radius_m: float = 0.05
    name = "reach"
    events = ("success", "wrong_object")

    @property
    def things(self) -> tuple[Cube, ...]:
        return tuple(Cube(f"cube_{colour}", colour) for colour in self.colours)

    def start(self, rng: np.random.Generator) -> Start:
        goal = int(rng.integers(len(self.colours)))
        template = self.templates[int(rng.integers(len(self.templates)))]
        return Start(
            objects=_scatter(rng, len(self.colours)),
            joints=rng.uniform(-_JOINT_NOISE, _JOINT_NOISE, 7),
            goal=goal,
            instruction=template.replace("{colour}", self.colours[goal]),
        )

    def judge(self, tip: np.ndarray, objects: np.ndarray, goal: np.ndarray) -> dict[str, np.ndarray]:
        near = np.linalg.norm(above(objects) - tip[:, None], axis=2) <= self.radius_m
        named = np.arange(objects.shape[1]) == goal[:, None]
        return {"success": (near & named).any(1), "wrong_object": (near & ~named).any(1)}


def above(objects: np.ndarray) -> np.ndarray:
    """The points to reach over cubes at [..., 3], metres."""
    return objects + (0.0, 0.0, HOVER_M)


def _scatter(rng: np.random.Generator, count: int) -> np.ndarray:
    """Centres of cubes on the table, uniform among those that keep apart, [count, 3] metres."""
    for _ in range(_TRIES):
        places = rng.uniform(PLACES[0], PLACES[1], (count, 2))
        gaps = np.linalg.norm(places[:, None] - places[None], axis=2)[np.triu_indices(count, 1)]
        if gaps.min(initial=np.inf) >= APART_M:
            return np.concatenate([places, np.full((count, 1), CUBE_HALF_M)], axis=1)
    raise ValueError(f"sim.objects: {count} cubes do not fit on the table {APART_M} m apart; use fewer colours")
