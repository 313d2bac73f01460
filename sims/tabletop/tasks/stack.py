"""Task: stack one named cube on another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sims.tabletop.layout import scatter
from sims.tabletop.task import Start, TabletopState
from sims.tabletop.tasks.placing import BLOCK_HALF_M, MOVED_M, PlacingTask
from sims.tabletop.things import Cube

_APART_M = 0.115


@dataclass(frozen=True)
class StackTask(PlacingTask):
    """Success: the first named cube rests on the second, within `radius_m` of its middle, and is let go.

    Failures: a cube that is not named was moved by 4 cm ("wrong_object"), the named cube fell off the table
    ("dropped").

    Args:
        colours: of the cubes, at least two; names of `sims.tabletop.things.COLOURS`.
        radius_m: how near the lower cube's middle counts, metres.
        yaw: largest turn of a cube at the start, rad.
        joint_noise: of the arm's first posture, rad per joint.
    """

    colours: tuple[str, ...]
    radius_m: float
    yaw: float
    joint_noise: float
    name = "stack"
    events = ("success", "wrong_object", "dropped")

    @property
    def things(self) -> tuple[Cube, ...]:
        return tuple(Cube(f"cube_{colour}", colour, BLOCK_HALF_M, ghost=False) for colour in self.colours)

    def start(self, rng: np.random.Generator, templates: Sequence[str]) -> Start:
        cubes = len(self.colours)
        cube, base = (int(k) for k in rng.choice(cubes, 2, replace=False))
        text = templates[int(rng.integers(len(templates)))]
        return Start(
            objects=scatter(rng, [BLOCK_HALF_M] * cubes, _APART_M),
            joints=rng.uniform(-self.joint_noise, self.joint_noise, 7),
            named=(cube, base),
            instruction=text.replace("{cube}", self.colours[cube]).replace("{base}", self.colours[base]),
            yaw=rng.uniform(-self.yaw, self.yaw, cubes),
        )

    def strict(self) -> StackTask:
        return replace(self, radius_m=0.8 * self.radius_m)

    def target(self, state: TabletopState) -> np.ndarray:
        return state.thing(1) + np.array([0, 0, 2 * BLOCK_HALF_M])

    def judge(self, state: TabletopState) -> dict[str, np.ndarray]:
        moved = (state.displacement() > MOVED_M) & ~state.is_named(0, 1)
        return {"success": self.is_placed(state), "wrong_object": moved.any(1), "dropped": self.is_dropped(state)}
