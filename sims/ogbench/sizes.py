"""Sizes of OGBench's scenes. Both Pythons import this file."""

from __future__ import annotations

from typing import Any, NamedTuple

from sims.host.sizes import scaled_sizes

ACTION = 5
"""Numbers of an action: x, y, z of the hand, its yaw, the gripper."""
CENTRE, METRES = (0.425, 0.0, 0.0), 0.1
"""Places are observed from here, in this many metres."""


class SceneContents(NamedTuple):
    """What stands on a table.

    Attributes:
        cubes: their number.
        buttons: their number.
        tasks: what is asked for, one of them in an episode.
    """

    cubes: int
    buttons: int
    tasks: tuple[str, ...]

    @property
    def proprio(self) -> int:
        """Numbers of an observation: those of the package, and those of the goal."""
        state = 19 + 9 * self.cubes + 4 * self.buttons + 4 * ("drawer" in self.tasks)
        goal = (self.cubes + 5) * (self.cubes > 0) + (self.buttons + 3) * (self.buttons > 0)
        return state + goal + 2 * ("drawer" in self.tasks)


SCENES = {
    "cube-single": SceneContents(1, 0, ("cube",)),
    "cube-double": SceneContents(2, 0, ("cube",)),
    "cube-triple": SceneContents(3, 0, ("cube",)),
    "cube-quadruple": SceneContents(4, 0, ("cube",)),
    "scene": SceneContents(1, 2, ("cube", "button", "drawer", "window")),
    "puzzle-3x3": SceneContents(0, 9, ("button",)),
    "puzzle-4x4": SceneContents(0, 16, ("button",)),
}


def sizes(scene: str, chunk: int) -> dict[str, Any]:
    """Constructor arguments of a policy; the package scales its numbers, so that the processor leaves them."""
    numbers = SCENES[scene].proprio
    return scaled_sizes(ACTION, chunk, [0.0] * numbers, [1.0] * numbers)
