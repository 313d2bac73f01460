"""Task: pick the named cube up and put it on the named plate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sims.tabletop.layout import scatter
from sims.tabletop.task import Start, TabletopState, length
from sims.tabletop.tasks.placing import BLOCK_HALF_M, LEVEL_M, MOVED_M, RELEASED_M, PlacingTask
from sims.tabletop.things import Cube, Plate

_APART_M = 0.115


@dataclass(frozen=True)
class PickPlaceTask(PlacingTask):
    """Success: the named cube rests on the named plate, within `radius_m` of its middle, and is let go.

    Failures: another cube was moved by 4 cm ("wrong_object"), the named cube was let go on another plate
    ("wrong_place") or fell off the table ("dropped").

    Args:
        colours: of the cubes; names of `sims.tabletop.things.COLOURS`.
        goals: colours of the plates.
        radius_m: how near the plate's middle counts, metres.
        yaw: largest turn of a cube at the start, rad.
        joint_noise: of the arm's first posture, rad per joint.
    """

    colours: tuple[str, ...]
    goals: tuple[str, ...]
    radius_m: float
    yaw: float
    joint_noise: float
    name = "pick_place"
    events = ("success", "wrong_object", "wrong_place", "dropped")

    @property
    def things(self) -> tuple[Cube | Plate, ...]:
        cubes = tuple(Cube(f"cube_{colour}", colour, BLOCK_HALF_M, ghost=False) for colour in self.colours)
        return cubes + tuple(Plate(f"plate_{colour}", colour) for colour in self.goals)

    def start(self, rng: np.random.Generator, templates: Sequence[str]) -> Start:
        cubes, plates = len(self.colours), len(self.goals)
        cube, plate = int(rng.integers(cubes)), int(rng.integers(plates))
        text = templates[int(rng.integers(len(templates)))]
        yaw = np.where(np.arange(cubes + plates) < cubes, rng.uniform(-self.yaw, self.yaw, cubes + plates), 0)
        return Start(
            objects=scatter(rng, [thing.rest_m for thing in self.things], _APART_M),
            joints=rng.uniform(-self.joint_noise, self.joint_noise, 7),
            named=(cube, cubes + plate),
            instruction=text.replace("{cube}", self.colours[cube]).replace("{plate}", self.goals[plate]),
            yaw=yaw,
        )

    def strict(self) -> PickPlaceTask:
        return replace(self, radius_m=0.7 * self.radius_m)

    def target(self, state: TabletopState) -> np.ndarray:
        return state.thing(1) + np.array([0, 0, self.things[-1].rest_m + BLOCK_HALF_M])

    def judge(self, state: TabletopState) -> dict[str, np.ndarray]:
        cubes = len(self.colours)
        away = state.thing(0)[:, None] - state.objects[:, cubes:]
        flat = length(away[:, :, :2]) <= self.radius_m
        resting = np.abs(away[:, :, 2] - self.things[-1].rest_m - BLOCK_HALF_M) <= LEVEL_M
        let_go = flat & resting & (state.gap >= RELEASED_M)[:, None]
        moved = (state.displacement() > MOVED_M) & ~state.is_named(0)
        return {
            "success": self.is_placed(state),
            "wrong_object": moved[:, :cubes].any(1),
            "wrong_place": (let_go & ~state.is_named(1)[:, cubes:]).any(1),
            "dropped": self.is_dropped(state),
        }
