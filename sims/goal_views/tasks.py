"""Synthesis of tasks: a layout, a masked picture of the target from another viewpoint, an event and a start.

ROCKET-3: Scalable Multi-Task Reinforcement Learning for Generalizable Spatial Intelligence in Visuomotor Agents, 2025.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import atan2, cos, radians, sin

import numpy as np

from mmrl.core.errors import check_at_least
from mmrl.core.rng import derive_rng
from sims.goal_views.drawing import draw_view
from sims.goal_views.layout import KINDS, Cell, RoomLayout, draw_layout
from sims.goal_views.projection import Point, Viewpoint, project_point

EVENTS = ("approach", "break", "use")
EYE_M, PITCH, FOVY = 0.9, radians(-20), radians(80)
"""Height of every camera, its tilt, and its vertical field of view."""
_TURN = radians(20)  # most that a goal camera looks past its target
_CAMERAS, _LAYOUTS = 20, 1000  # tries


@dataclass(frozen=True, eq=False)
class GoalTask:
    """One task: from a start, bring about an event at the object that a mask shows in a picture from elsewhere.

    Args:
        layout: of the room.
        target: index of the object.
        event: one of `EVENTS`.
        difficulty: name of the start's distance.
        start: cell of the agent.
        heading: of the agent, 0 to 3.
        camera: that the goal view was taken from.
        centre: pixel (u, v) of the target's centre in the goal view.
        goal_view: image, uint8 [S, S, 3].
        goal_mask: the target's pixels in it, bool [S, S].
    """

    layout: RoomLayout
    target: int
    event: str
    difficulty: str
    start: Cell
    heading: int
    camera: Viewpoint
    centre: tuple[float, float]
    goal_view: np.ndarray
    goal_mask: np.ndarray


@dataclass(frozen=True)
class TaskGenerator:
    """Draws tasks; a task is a function of its seed.

    A layout is drawn, an object chosen and a camera placed at a distance of it. The object's centre is projected onto
    the picture; the mask is the segment under that pixel. A task is drawn again if the centre is behind the camera or
    beside the picture, if something hides it, or if no cell has the wanted walking distance to the target. Then the
    agent is put into such a cell. Source: ROCKET-3, 2025, synthesis of tasks.

    Args:
        side: cells of a side of the room.
        walls: walls inside.
        objects: of different kinds.
        distances: walking distance from the start to the target by difficulty, steps; all are equally likely.
        goal_distances: smallest and largest distance of the goal camera, metres.
        image_size: S, pixels a side.
        least_pixels: of a mask.
    """

    side: int = 8
    walls: int = 8
    objects: int = 4
    distances: Mapping[str, int] = field(default_factory=lambda: {"easy": 3, "hard": 8})
    goal_distances: tuple[float, float] = (1.5, 4.0)
    image_size: int = 20
    least_pixels: int = 4

    def __post_init__(self) -> None:
        check_at_least(2, "sim.kwargs", side=self.side)
        check_at_least(0, "sim.kwargs", walls=self.walls)
        check_at_least(1, "sim.kwargs", objects=self.objects, least_pixels=self.least_pixels)
        if self.objects > len(KINDS):
            raise ValueError(f"sim.kwargs.objects must be at most {len(KINDS)}, the kinds, got {self.objects}")
        if self.walls + self.objects >= self.side**2:
            raise ValueError(
                f"sim.kwargs: {self.walls} walls and {self.objects} objects leave none of {self.side**2} cells free; "
                "lower sim.kwargs.walls or raise sim.kwargs.side"
            )
        if not self.distances or min(self.distances.values()) < 1:
            raise ValueError(
                f"sim.kwargs.distances must name walking distances of at least 1 step, got {dict(self.distances)}"
            )
        nearest, farthest = self.goal_distances
        if not 0 < nearest <= farthest:
            raise ValueError(
                f"sim.kwargs.goal_distances must be the smallest and the largest, above 0, got {self.goal_distances}"
            )

    def kind_of(self, seed: int) -> tuple[str, str]:
        """Difficulty and event of the task of a seed."""
        rng = derive_rng("goal_views", "kind", seed)
        names = sorted(self.distances)
        return names[int(rng.integers(len(names)))], EVENTS[int(rng.integers(len(EVENTS)))]

    def synthesise(self, seed: int) -> GoalTask:
        """Draw the task of a seed.

        Raises:
            ValueError: no layout has a start at the wanted distance and a goal view; the message says what helps.
        """
        difficulty, event = self.kind_of(seed)
        rng = derive_rng("goal_views", "task", seed)
        for _ in range(_LAYOUTS):
            layout = draw_layout(rng, self.side, self.walls, self.objects)
            target, heading = int(rng.integers(self.objects)), int(rng.integers(4))
            distances = layout.walking_distances(layout.cells[target])
            starts = [cell for cell, steps in sorted(distances.items()) if steps == self.distances[difficulty]]
            picture = self._photograph(rng, layout, target) if starts else None
            if picture is not None:
                start = starts[int(rng.integers(len(starts)))]
                return GoalTask(layout, target, event, difficulty, start, heading, *picture)
        raise ValueError(
            f"no layout of {_LAYOUTS} has a start {self.distances[difficulty]} steps from a target that a goal camera "
            "sees: lower sim.kwargs.distances, or raise sim.kwargs.side or the range of sim.kwargs.goal_distances"
        )

    def _photograph(
        self, rng: np.random.Generator, layout: RoomLayout, target: int
    ) -> tuple[Viewpoint, tuple[float, float], np.ndarray, np.ndarray] | None:
        """Camera, pixel of the target's centre, goal view and mask; None if no camera sees the target's centre."""
        boxes, centre = layout.boxes(), find_centre(layout, target)
        for _ in range(_CAMERAS):
            camera = self._draw_camera(rng, centre)
            pixel = project_point(centre, camera, self.image_size, self.image_size, FOVY)
            beside = pixel is None or not all(0 <= at < self.image_size for at in pixel)
            if beside or not layout.is_free((int(np.floor(camera.eye[0])), int(np.floor(camera.eye[2])))):
                continue
            image, segments = draw_view(boxes, camera, self.image_size, FOVY)
            mask = segments == target
            if mask[int(pixel[1]), int(pixel[0])] and mask.sum() >= self.least_pixels:
                return camera, pixel, image, mask
        return None

    def _draw_camera(self, rng: np.random.Generator, centre: Point) -> Viewpoint:
        """Draw a camera at a distance of the target's centre, which looks about at it."""
        distance, angle, turn = rng.uniform(*self.goal_distances), rng.uniform(0, 2 * np.pi), rng.uniform(-_TURN, _TURN)
        x, z = centre[0] + distance * cos(angle), centre[2] + distance * sin(angle)
        yaw = atan2(centre[0] - x, centre[2] - z) + turn
        return Viewpoint((x, EYE_M, z), yaw, PITCH)


def find_centre(layout: RoomLayout, target: int) -> Point:
    """Centre of an object, metres."""
    kind, (x, z) = layout.objects[target]
    return x + 0.5, KINDS[kind][1] / 2, z + 0.5
