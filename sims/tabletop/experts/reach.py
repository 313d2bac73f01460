"""Scripted expert for reaching: stay high until nearly above the named cube, then descend."""

from __future__ import annotations

import numpy as np

from sims.tabletop.experts.forecast import Forecast, towards
from sims.tabletop.tasks.reach import ReachTask, above

_CRUISE_M = 0.09  # height over the point to reach while travelling: 4 cm clear of every other cube's ball
_DESCEND_M = 0.08  # horizontal distance at which the descent begins


def reach(task: ReachTask, forecast: Forecast) -> np.ndarray:
    """The next action, [n, 3]."""
    goal = above(forecast.named_object(0))
    distance = np.linalg.norm((goal - forecast.at)[:, :2], axis=1)
    aim = goal.copy()
    aim[:, 2] = np.where(distance > _DESCEND_M, goal[:, 2] + _CRUISE_M, goal[:, 2])
    return towards(forecast, aim)
