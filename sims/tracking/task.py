"""Task: move the cube as the demonstration did, from a disturbed start."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from mmrl.core.errors import check_at_least
from mmrl.core.rng import derive_rng
from sims.render.base import Kind
from sims.tabletop.arm import HOME, REACH_BOX
from sims.tabletop.sim import SingleTaskSim
from sims.tabletop.task import Start, TabletopState, TabletopTask, length
from sims.tabletop.things import CUBE_HALF_M, Cube, Disc
from sims.task import split_of
from sims.tracking.demonstration import SCRIPT, Demonstration, HumanDemonstration, turn_offset
from sims.tracking.retargeting import solve_posture

Reset = Literal["pre_contact", "random"]
RESETS: tuple[Reset, ...] = ("pre_contact", "random")
_OVER_M = 0.075  # fingertips this high are above a cube
_BESIDE_M = 0.07  # and this far from its centre beside it


@dataclass(frozen=True)
class TrackingTask(TabletopTask):
    """A cube that is to follow the demonstration's, and a disc where that one ends.

    An episode ends early when the fingertips are farther than `lost_m` from the cube ("lost") or the cube falls off
    the table ("dropped").

    Args:
        demonstration: whose cube is followed.
        reset: "pre_contact" puts the fingertips where the demonstration's hand was in its first frame, relative to the
            cube; "random" anywhere within `lost_m` of the cube.
        object_m: largest displacement of the cube from its demonstrated start, per axis, metres.
        yaw: largest turn of it, rad.
        joint_noise: largest error of the arm's first posture, rad per joint.
        lost_m: see above, metres.
    """

    demonstration: HumanDemonstration
    reset: Reset
    object_m: float
    yaw: float
    joint_noise: float
    lost_m: float
    name = "tracking"
    events = ("lost", "dropped")
    terms = ("tip_distance_m",)

    @property
    def things(self) -> tuple[Cube | Disc, ...]:
        return Cube("cube_red", "red", ghost=False), Disc("disc_purple", "purple", CUBE_HALF_M)

    @cached_property
    def frames(self) -> Demonstration:
        """The demonstration at the control rate."""
        return self.demonstration.read()

    def start(self, rng: np.random.Generator, templates: Sequence[str]) -> Start:
        frames, disc = self.frames, self.things[1]
        cube = frames.object_m[0] + np.array([*rng.uniform(-self.object_m, self.object_m, 2), 0.0])
        yaw = float(frames.yaw[0] + rng.uniform(-self.yaw, self.yaw))
        noise = rng.uniform(-self.joint_noise, self.joint_noise, len(HOME))
        if self.reset == "pre_contact":
            tip = cube + turn_offset(frames.pre_contact_m, yaw)
        else:
            tip = self._draw_tip(rng, cube)
        return Start(
            objects=np.stack([cube, np.array([*frames.object_m[-1, :2], disc.rest_m])]),
            joints=solve_posture(tip) - HOME + noise,
            named=(0, 1),
            instruction=templates[int(rng.integers(len(templates)))],
            yaw=np.array([yaw, 0.0]),
        )

    def _draw_tip(self, rng: np.random.Generator, cube: np.ndarray) -> np.ndarray:
        """Draw a place of the fingertips, uniform within `lost_m` of the cube and outside of it, [3] metres."""
        while True:
            tip = rng.uniform(REACH_BOX[0], REACH_BOX[1])
            beside = math.dist(tip[:2], cube[:2])
            if math.dist(tip, cube) < self.lost_m - 0.02 and (tip[2] > _OVER_M or beside > _BESIDE_M):
                return tip

    def judge(self, state: TabletopState) -> dict[str, np.ndarray]:
        cube = state.thing(0)
        return {"lost": length(cube - state.tip) > self.lost_m, "dropped": cube[:, 2] < -CUBE_HALF_M}

    def measure(self, state: TabletopState) -> dict[str, np.ndarray]:
        return {"tip_distance_m": length(state.thing(0) - state.tip)}


@dataclass(frozen=True)
class TrackingScene(SingleTaskSim):
    """The tabletop of `TrackingTask`, without a camera and with one control step a decision.

    `DemonstrationTracking` adds the reward.

    Args:
        demonstration: whose cube is followed.
        reset: of training states, as in `TrackingTask`.
        held_out_reset: of held-out states; None: as `reset`.
        object_m: largest displacement of the cube, per axis, metres.
        joint_noise: largest error of the first posture, rad per joint.
        yaw: largest turn of the cube, rad.
        lost_m: distance of the fingertips from the cube that ends an episode, metres.
        max_decisions: control steps of an episode.
        templates: instructions; policies on positions do not read them.
        chunk: control steps per decision.
        observe: images; none.
    """

    demonstration: HumanDemonstration = SCRIPT
    reset: Reset = "pre_contact"
    held_out_reset: Reset | None = None
    object_m: float = 0.02
    joint_noise: float = 0.035
    yaw: float = 0.35
    lost_m: float = 0.3
    max_decisions: int | None = 60
    templates: tuple[str, ...] | None = ("move the cube as it was shown",)
    chunk: int = 1
    observe: tuple[Kind, ...] = ()
    name = "tabletop-tracking"
    slots = ()
    levels: ClassVar[dict[str, dict[str, Any]]] = {"easy": {}, "default": {}, "hard": {}}

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("reset", "held_out_reset"):
            if getattr(self, name) not in (*RESETS, *([None] if name == "held_out_reset" else [])):
                raise ValueError(f"sim.{name} must be one of {', '.join(RESETS)}, got {getattr(self, name)!r}")
        check_at_least(0, "sim", object_m=self.object_m, yaw=self.yaw, joint_noise=self.joint_noise)
        check_at_least(0.12, "sim", lost_m=self.lost_m)

    @property
    def task(self) -> TrackingTask:
        names = ("reset", "object_m", "yaw", "joint_noise", "lost_m")
        return TrackingTask(self.demonstration, **{name: getattr(self, name) for name in names})

    @cached_property
    def _tasks(self) -> dict[str, TrackingTask]:
        """The task of each split."""
        return {"train": self.task, "held_out": replace(self.task, reset=self.held_out_reset or self.reset)}

    def begin(self, seed: int) -> Start:
        task = self._tasks[split_of(seed)]
        return task.start(derive_rng(task.name, seed), self.sentences(self.wording))
