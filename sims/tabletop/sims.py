"""The simulators as recipes name them: one class per task, its levels beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sims.tabletop.layout import APART_M
from sims.tabletop.push import PushTask
from sims.tabletop.reach import ReachTask
from sims.tabletop.sim import One, check_colours

_VARIED = (1.5, 1.3, 1.1)  # mass, friction, gains
_RGB = ("red", "green", "blue")


@dataclass(frozen=True)
class Reach(One):
    """The instruction names one of several cubes; touching another one fails.

    Args:
        colours: one cube each, at least two.
        radius_m: of the ball above the cube that counts as reached, metres.
        joint_noise: of the arm's first posture, rad per joint.
    """

    colours: tuple[str, ...] | None = None
    radius_m: float | None = None
    joint_noise: float | None = None
    name = "tabletop-reach"
    slots = ("{colour}",)
    levels: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "easy": {"colours": ("red", "blue"), "radius_m": 0.06, "joint_noise": 0.05, "max_decisions": 4},
        "default": {"colours": _RGB, "radius_m": 0.05, "joint_noise": 0.05, "max_decisions": 4},
        "hard": {
            "colours": (*_RGB, "yellow"),
            "radius_m": 0.04,
            "joint_noise": 0.15,
            "max_decisions": 5,
            "dynamics": _VARIED,
        },
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_colours("colours", self.task.colours, least=2)
        if not 0 < self.task.radius_m < APART_M / 2:
            raise ValueError(f"sim.radius_m must be in (0, {APART_M / 2}): two balls may not overlap")

    @property
    def task(self) -> ReachTask:
        return ReachTask(**self.chosen("colours", "radius_m", "joint_noise"))


@dataclass(frozen=True)
class Push(One):
    """The instruction names a cube and a disc: push the one onto the other with closed fingers.

    Args:
        colours: one cube each.
        goals: one disc each.
        distance_m: shortest and longest way of the cube, metres.
        radius_m: how near the disc's centre counts, metres.
        yaw: largest turn of a cube at the start, rad.
        joint_noise: of the arm's first posture, rad per joint.
    """

    colours: tuple[str, ...] | None = None
    goals: tuple[str, ...] | None = None
    distance_m: tuple[float, float] | None = None
    radius_m: float | None = None
    yaw: float | None = None
    joint_noise: float | None = None
    name = "tabletop-push"
    slots = ("{cube}", "{disc}")
    levels: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "easy": {
            "colours": ("red", "blue"),
            "goals": ("purple",),
            "distance_m": (0.08, 0.11),
            "radius_m": 0.05,
            "yaw": 0.0,
            "joint_noise": 0.05,
            "max_decisions": 6,
        },
        "default": {
            "colours": ("red", "blue"),
            "goals": ("purple", "orange"),
            "distance_m": (0.10, 0.15),
            "radius_m": 0.045,
            "yaw": 0.3,
            "joint_noise": 0.05,
            "max_decisions": 8,
        },
        "hard": {
            "colours": (*_RGB, "yellow"),
            "goals": ("purple", "orange"),
            "distance_m": (0.10, 0.20),
            "radius_m": 0.04,
            "yaw": 0.7,
            "joint_noise": 0.1,
            "max_decisions": 12,
            "dynamics": _VARIED,
        },
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_colours("colours", self.task.colours)
        check_colours("goals", self.task.goals)
        if not 0 < self.task.radius_m < self.task.distance_m[0] <= self.task.distance_m[1]:
            raise ValueError(
                f"push needs 0 < sim.radius_m < sim.distance_m[0] <= sim.distance_m[1], got {self.task.radius_m} and "
                f"{list(self.task.distance_m)}: otherwise it is solved at the start"
            )

    @property
    def task(self) -> PushTask:
        return PushTask(**self.chosen("colours", "goals", "distance_m", "radius_m", "yaw", "joint_noise"))
