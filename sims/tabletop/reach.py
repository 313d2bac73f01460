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
        away = above(objects) - tip[:, None]
        near = np.einsum("nki,nki->nk", away, away) <= self.radius_m**2
        named = np.arange(objects.shape[1]) == goal[:, None]
        return {"success": (near & named).any(1), "wrong_object": (near & ~named).any(1)}


def above(objects: np.ndarray) -> np.ndarray:
    """The points to reach over cubes at [..., 3], metres."""
    return objects + np.array([0.0, 0.0, HOVER_M])


def _scatter(rng: np.random.Generator, count: int) -> np.ndarray:
    """Centres of cubes on the table, uniform among those that keep apart, [count, 3] metres."""
    (left, near), (width, depth) = PLACES[0].tolist(), (PLACES[1] - PLACES[0]).tolist()
    for _ in range(_TRIES):
        places: list[tuple[float, float, float]] = []
        # plain numbers: for a handful of cubes arrays cost ten times the arithmetic
        for u, v in rng.random((count, 2)).tolist():
            x, y = left + width * u, near + depth * v
            if any((x - a) ** 2 + (y - b) ** 2 < APART_M**2 for a, b, _ in places):
                break
            places.append((x, y, CUBE_HALF_M))
        else:
            return np.array(places)
    raise ValueError(f"sim.objects: {count} cubes do not fit on the table {APART_M} m apart; use fewer colours")
