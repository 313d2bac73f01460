"""Base of the pick-and-place and stacking tasks."""

from __future__ import annotations

import numpy as np

from sims.tabletop.task import TabletopState, TabletopTask, length

BLOCK_HALF_M = 0.025  # of the cubes that are grasped: a centimetre of room on either side between open fingers
MOVED_M = 0.04  # another thing that was moved this far ends the episode
RELEASED_M = 0.058  # fingers at least this far apart hold nothing
LEVEL_M = 0.012  # of the height over its place
STEADY = 3  # control steps that the cube must stay in place


class PlacingTask(TabletopTask):
    """Success: the cube rests on the target with open fingers for three control steps."""

    grip = "free"
    timestep = 0.005  # a grasp slips at 10 ms
    memory = 1  # for how many control steps the cube has been in place
    terms = ("tip_distance_m", "goal_distance_m")
    radius_m: float

    def target(self, state: TabletopState) -> np.ndarray:
        """Target position of the named cube's centre, [n, 3] metres."""
        raise NotImplementedError

    def remember(self, state: TabletopState) -> np.ndarray:
        away = state.thing(0) - self.target(state)
        is_placed = (length(away[:, :2]) <= self.radius_m) & (np.abs(away[:, 2]) <= LEVEL_M)
        return np.where((is_placed & (state.gap >= RELEASED_M))[:, None], state.memory + 1, 0.0)

    def is_placed(self, state: TabletopState) -> np.ndarray:
        """Whether the cube has been in place long enough, bool [n]."""
        return state.memory[:, 0] >= STEADY

    def is_dropped(self, state: TabletopState) -> np.ndarray:
        """Whether the named cube fell off the table, bool [n]."""
        return state.thing(0)[:, 2] < -BLOCK_HALF_M

    def measure(self, state: TabletopState) -> dict[str, np.ndarray]:
        """tip_distance_m: tip to the named cube; goal_distance_m: cube to its target position."""
        return {
            "tip_distance_m": length(state.thing(0) - state.tip),
            "goal_distance_m": length(state.thing(0) - self.target(state)),
        }
