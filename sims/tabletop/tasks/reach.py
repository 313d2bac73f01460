"""Task: reach the named cube and touch no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sims.tabletop.layout import scatter
from sims.tabletop.task import Start, TabletopState, TabletopTask, length
from sims.tabletop.things import CUBE_HALF_M, Cube

_STRICT_M = 0.04
HOVER_M = 0.06  # the point to reach lies this far above a cube's centre
_UP = np.array([0.0, 0.0, HOVER_M])


@dataclass(frozen=True)
class ReachTask(TabletopTask):
    """Success: the tip comes within `radius_m` of the point above the named cube. Any other cube's ball fails.

    Args:
        colours: of the cubes; names of `sims.tabletop.things.COLOURS`.
        radius_m: of the ball to reach, metres.
        joint_noise: of the arm's first posture, rad per joint.
    """

    colours: tuple[str, ...]
    radius_m: float = 0.05
    joint_noise: float = 0.05
    name = "reach"
    events = ("success", "wrong_object")
    terms = ("tip_distance_m",)
    grip = "open"
    floor_m = 0.04
    timestep = 0.005

    @property
    def things(self) -> tuple[Cube, ...]:
        return tuple(Cube(f"cube_{colour}", colour) for colour in self.colours)

    def start(self, rng: np.random.Generator, templates: Sequence[str]) -> Start:
        goal = int(rng.integers(len(self.colours)))
        template = templates[int(rng.integers(len(templates)))]
        return Start(
            objects=scatter(rng, [CUBE_HALF_M] * len(self.colours)),
            joints=rng.uniform(-self.joint_noise, self.joint_noise, 7),
            named=(goal,),
            instruction=template.replace("{colour}", self.colours[goal]),
        )

    def strict(self) -> ReachTask:
        return replace(self, radius_m=min(_STRICT_M, self.radius_m))

    def judge(self, state: TabletopState) -> dict[str, np.ndarray]:
        away = above(state.objects) - state.tip[:, None]
        near = np.einsum("nki,nki->nk", away, away) <= self.radius_m**2
        target = state.is_named(0)
        return {"success": (near & target).any(1), "wrong_object": (near & ~target).any(1)}

    def measure(self, state: TabletopState) -> dict[str, np.ndarray]:
        """tip_distance_m: from the tip to the point to reach."""
        return {"tip_distance_m": length(above(state.thing(0)) - state.tip)}


def above(objects: np.ndarray) -> np.ndarray:
    """Target points above cubes at [..., 3], metres."""
    return objects + _UP
