"""Single-task simulators with their difficulty levels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mmrl.core.errors import check_interval
from sims.tabletop.layout import APART_M
from sims.tabletop.sim import SingleTaskSim, check_colours, check_yaw
from sims.tabletop.tasks.buttons import ButtonsTask
from sims.tabletop.tasks.drawer import DrawerTask
from sims.tabletop.tasks.pick_place import PickPlaceTask
from sims.tabletop.tasks.push import PushTask
from sims.tabletop.tasks.reach import ReachTask
from sims.tabletop.tasks.stack import StackTask

Levels = Mapping[str, Mapping[str, Any]]

_VARIED = (1.5, 1.3, 1.1)  # mass, friction, gains
_TWO, _THREE, _FOUR = ("red", "blue"), ("red", "green", "blue"), ("red", "green", "blue", "yellow")
_PLACES = ("purple", "orange")


@dataclass(frozen=True)
class Reach(SingleTaskSim):
    """Reach the cube that the instruction names; touching another one fails.

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
    levels: ClassVar[Levels] = {
        "easy": dict(colours=_TWO, radius_m=0.06, joint_noise=0.05, max_decisions=4),
        "default": dict(colours=_THREE, radius_m=0.05, joint_noise=0.05, max_decisions=4),
        "hard": dict(colours=_FOUR, radius_m=0.04, joint_noise=0.15, max_decisions=5, dynamics=_VARIED),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_colours("colours", self.task.colours, least=2)
        if not 0 < self.task.radius_m < APART_M / 2:
            raise ValueError(f"sim.radius_m must be in (0, {APART_M / 2}): two balls may not overlap")

    @property
    def task(self) -> ReachTask:
        return ReachTask(**self.task_arguments("colours", "radius_m", "joint_noise"))


@dataclass(frozen=True)
class Push(SingleTaskSim):
    """Push the named cube onto the named disc with closed fingers.

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
    levels: ClassVar[Levels] = {
        "easy": dict(
            colours=_TWO,
            goals=("purple",),
            distance_m=(0.08, 0.11),
            radius_m=0.05,
            yaw=0.0,
            joint_noise=0.05,
            max_decisions=6,
        ),
        "default": dict(
            colours=_TWO,
            goals=_PLACES,
            distance_m=(0.10, 0.15),
            radius_m=0.045,
            yaw=0.3,
            joint_noise=0.05,
            max_decisions=8,
        ),
        "hard": dict(
            colours=_FOUR,
            goals=_PLACES,
            distance_m=(0.10, 0.20),
            radius_m=0.04,
            yaw=0.7,
            joint_noise=0.1,
            max_decisions=12,
            dynamics=_VARIED,
        ),
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
        return PushTask(**self.task_arguments("colours", "goals", "distance_m", "radius_m", "yaw", "joint_noise"))


@dataclass(frozen=True)
class PickPlace(SingleTaskSim):
    """Pick the named cube up, put it on the named plate and let go.

    Args:
        colours: one cube each.
        goals: one plate each.
        radius_m: how near the plate's middle counts, metres.
        yaw: largest turn of a cube at the start, rad; at most 0.25, for the open fingers to fit around it.
        joint_noise: of the arm's first posture, rad per joint.
    """

    colours: tuple[str, ...] | None = None
    goals: tuple[str, ...] | None = None
    radius_m: float | None = None
    yaw: float | None = None
    joint_noise: float | None = None
    name = "tabletop-pick-place"
    slots = ("{cube}", "{plate}")
    levels: ClassVar[Levels] = {
        "easy": dict(colours=_TWO, goals=("purple",), radius_m=0.045, yaw=0.0, joint_noise=0.05, max_decisions=12),
        "default": dict(colours=_TWO, goals=_PLACES, radius_m=0.04, yaw=0.1, joint_noise=0.05, max_decisions=12),
        "hard": dict(
            colours=_THREE,
            goals=_PLACES,
            radius_m=0.035,
            yaw=0.2,
            joint_noise=0.1,
            max_decisions=14,
            dynamics=_VARIED,
        ),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_colours("colours", self.task.colours)
        check_colours("goals", self.task.goals)
        check_yaw(self.task.yaw)

    @property
    def task(self) -> PickPlaceTask:
        return PickPlaceTask(**self.task_arguments("colours", "goals", "radius_m", "yaw", "joint_noise"))


@dataclass(frozen=True)
class Stack(SingleTaskSim):
    """Put the first named cube on the second and let go.

    Args:
        colours: one cube each, at least two.
        radius_m: how near the lower cube's middle counts, metres.
        yaw: largest turn of a cube at the start, rad; at most 0.25, for the open fingers to fit around it.
        joint_noise: of the arm's first posture, rad per joint.
    """

    colours: tuple[str, ...] | None = None
    radius_m: float | None = None
    yaw: float | None = None
    joint_noise: float | None = None
    name = "tabletop-stack"
    slots = ("{cube}", "{base}")
    levels: ClassVar[Levels] = {
        "easy": dict(colours=_TWO, radius_m=0.024, yaw=0.0, joint_noise=0.05, max_decisions=12),
        "default": dict(colours=_THREE, radius_m=0.022, yaw=0.1, joint_noise=0.05, max_decisions=12),
        "hard": dict(colours=_FOUR, radius_m=0.02, yaw=0.2, joint_noise=0.1, max_decisions=14, dynamics=_VARIED),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_colours("colours", self.task.colours, least=2)
        check_yaw(self.task.yaw)

    @property
    def task(self) -> StackTask:
        return StackTask(**self.task_arguments("colours", "radius_m", "yaw", "joint_noise"))


@dataclass(frozen=True)
class OpenDrawer(SingleTaskSim):
    """Pull the named drawer open by its handle, with closed fingers.

    Args:
        colours: of the drawers, at most three.
        open_m: how far counts as open, metres; at most 0.12.
        shift_m: largest displacement of a drawer from its place in the row, metres; at most 0.04.
        joint_noise: of the arm's first posture, rad per joint.
    """

    colours: tuple[str, ...] | None = None
    open_m: float | None = None
    shift_m: float | None = None
    joint_noise: float | None = None
    name = "tabletop-drawer"
    slots = ("{drawer}",)
    levels: ClassVar[Levels] = {
        "easy": dict(colours=_TWO, open_m=0.05, shift_m=0.0, joint_noise=0.05, max_decisions=8),
        "default": dict(colours=_THREE, open_m=0.08, shift_m=0.03, joint_noise=0.05, max_decisions=8),
        "hard": dict(colours=_THREE, open_m=0.12, shift_m=0.04, joint_noise=0.1, max_decisions=10, dynamics=_VARIED),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_colours("colours", self.task.colours)
        if len(self.task.colours) > 3:
            raise ValueError(f"sim.colours: three drawers fit on the table, got {list(self.task.colours)}")
        check_interval("sim", "(0, 0.12]", open_m=self.task.open_m)
        check_interval("sim", "[0, 0.04]", shift_m=self.task.shift_m)

    @property
    def task(self) -> DrawerTask:
        return DrawerTask(**self.task_arguments("colours", "open_m", "shift_m", "joint_noise"))


@dataclass(frozen=True)
class PressButtons(SingleTaskSim):
    """Press the named buttons in the given order, and no other.

    Args:
        colours: one button each.
        presses: how many buttons are named.
        joint_noise: of the arm's first posture, rad per joint.
    """

    colours: tuple[str, ...] | None = None
    presses: int | None = None
    joint_noise: float | None = None
    name = "tabletop-buttons"
    slots = ("{buttons}",)
    levels: ClassVar[Levels] = {
        "easy": dict(colours=_TWO, presses=1, joint_noise=0.05, max_decisions=5),
        "default": dict(colours=_THREE, presses=2, joint_noise=0.05, max_decisions=10),
        "hard": dict(colours=_FOUR, presses=3, joint_noise=0.1, max_decisions=14, dynamics=_VARIED),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_colours("colours", self.task.colours)
        check_interval("sim", f"[1, {len(self.task.colours)}]", presses=self.task.presses)

    @property
    def task(self) -> ButtonsTask:
        return ButtonsTask(**self.task_arguments("colours", "presses", "joint_noise"))
