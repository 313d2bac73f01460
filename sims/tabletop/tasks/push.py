"""Task: push the named cube onto the named disc."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sims.tabletop.layout import at, first_valid, inside, min_distance, off_segment
from sims.tabletop.task import Start, TabletopState, TabletopTask, length
from sims.tabletop.things import CUBE_HALF_M, Cube, Disc

MOVED_M = 0.04  # another cube that was moved this far ends the episode
_RUN_UP_M = 0.09  # the hand comes down this far behind the cube
_OFF_DISC_M = 0.075  # from any cube to any disc: all are seen at the start
_APART_M = 0.11  # between cubes
_CLEAR_M = 0.10  # from the way of the named cube to the centre of any other


@dataclass(frozen=True)
class PushTask(TabletopTask):
    """Success: the named cube's centre comes within `radius_m` of the named disc's centre, horizontally.

    Failures: another cube was moved by 4 cm ("wrong_object"), the named cube came to another disc ("wrong_place"), a
    cube fell off the table ("dropped").

    Args:
        colours: of the cubes; names of `sims.tabletop.things.COLOURS`.
        goals: colours of the discs.
        distance_m: shortest and longest way of the named cube, metres.
        radius_m: how near the disc's centre counts, metres.
        yaw: largest turn of a cube at the start, rad.
        joint_noise: of the arm's first posture, rad per joint.
    """

    colours: tuple[str, ...]
    goals: tuple[str, ...]
    distance_m: tuple[float, float]
    radius_m: float
    yaw: float
    joint_noise: float
    name = "push"
    events = ("success", "wrong_object", "wrong_place", "dropped")
    terms = ("tip_distance_m", "goal_distance_m", "progress")

    @property
    def things(self) -> tuple[Cube | Disc, ...]:
        cubes = tuple(Cube(f"cube_{colour}", colour, ghost=False) for colour in self.colours)
        return cubes + tuple(Disc(f"disc_{colour}", colour, self.radius_m) for colour in self.goals)

    def start(self, rng: np.random.Generator, templates: Sequence[str]) -> Start:
        cubes, discs = len(self.colours), len(self.goals)
        cube, disc = int(rng.integers(cubes)), int(rng.integers(discs))
        text = templates[int(rng.integers(len(templates)))]
        heights = [thing.rest_m for thing in self.things]
        return Start(
            objects=first_valid(lambda: self._layout(rng, cube, cubes + disc, heights), "cubes and discs"),
            joints=rng.uniform(-self.joint_noise, self.joint_noise, 7),
            named=(cube, cubes + disc),
            instruction=text.replace("{cube}", self.colours[cube]).replace("{disc}", self.goals[disc]),
            yaw=rng.uniform(-self.yaw, self.yaw, cubes + discs),
        )

    def _layout(self, rng: np.random.Generator, cube: int, disc: int, heights: Sequence[float]) -> np.ndarray | None:
        """Sample places; None if a way is blocked, the run-up too short or a disc hidden under a cube."""
        *spots, (turn, far) = rng.random((len(heights) + 1, 2)).tolist()
        places = [at(u, v) for u, v in spots]
        angle, (short, long) = 2 * math.pi * turn, self.distance_m
        way, distance, (x, y) = (math.cos(angle), math.sin(angle)), short + (long - short) * far, places[cube]
        goal = places[disc] = (x + distance * way[0], y + distance * way[1])
        run_up = (x - _RUN_UP_M * way[0], y - _RUN_UP_M * way[1])
        if not (inside(goal) and inside(run_up, -0.02)):  # most of the draws: the rest is not looked at
            return None
        cubes, disc_m = len(self.colours), self.radius_m + 0.01
        fits = (
            min_distance(places[:cubes]) >= _APART_M
            and min_distance(places[cubes:]) >= 2 * self.radius_m + 0.01
            and min(math.dist(a, b) for a in places[:cubes] for b in places[cubes:]) >= _OFF_DISC_M
            and all(
                off_segment(place, run_up, goal) >= (_CLEAR_M if k < cubes else disc_m)
                for k, place in enumerate(places)
                if k not in (cube, disc)
            )
        )
        return np.array([(*place, height) for place, height in zip(places, heights)]) if fits else None

    def strict(self) -> PushTask:
        return replace(self, radius_m=0.7 * self.radius_m)

    def judge(self, state: TabletopState) -> dict[str, np.ndarray]:
        cubes = len(self.colours)
        on_disc = length(state.thing(0)[:, None, :2] - state.objects[:, cubes:, :2]) <= self.radius_m
        target = state.is_named(1)[:, cubes:]
        moved = (state.displacement() > MOVED_M) & ~state.is_named(0, 1)
        is_dropped = (state.objects[:, :cubes, 2] < -CUBE_HALF_M).any(1)
        return {
            "success": (on_disc & target).any(1) & ~is_dropped,
            "wrong_object": moved[:, :cubes].any(1),
            "wrong_place": (on_disc & ~target).any(1),
            "dropped": is_dropped,
        }

    def measure(self, state: TabletopState) -> dict[str, np.ndarray]:
        """tip_distance_m: tip to the named cube; goal_distance_m: the cube to its disc; progress: share of its way."""
        rows = np.arange(len(state.tip))
        cube, disc = state.thing(0), state.thing(1)
        distance = length((cube - disc)[:, :2])
        began = length((state.origin[rows, state.named[:, 0]] - disc)[:, :2])
        return {
            "tip_distance_m": length(cube - state.tip),
            "goal_distance_m": distance,
            "progress": np.clip(1 - distance / began, 0, 1),
        }
