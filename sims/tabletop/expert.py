"""A scripted reach: stay high until nearly above the named cube, then come down."""

from __future__ import annotations

import numpy as np

from sims.tabletop.arm import REACH_BOX, STEP_M
from sims.tabletop.reach import above
from sims.tabletop.vector import TabletopVectorEnv

_CRUISE_M = 0.09  # height over the point to reach while travelling: 4 cm clear of every other cube's ball
_DESCEND_M = 0.08  # horizontal distance at which the descent begins
_GENTLE = 2.5  # control steps that a distance is spread over, so that labels are not all +-1


def expert(env: TabletopVectorEnv) -> np.ndarray:
    """The next chunk for every world, planned from its set-point: clip(d / (2.5 step)), float32 [n, chunk, 3]."""
    rows = np.arange(env.num_envs)
    goal = above(env.worlds.objects[rows, env.goal])
    at = env.worlds.setpoint.copy()
    chunk = np.zeros((env.num_envs, env.chunk, 3))
    for k in range(env.chunk):
        distance = np.linalg.norm((goal - at)[:, :2], axis=1)
        aim = goal.copy()
        aim[:, 2] = np.where(distance > _DESCEND_M, goal[:, 2] + _CRUISE_M, goal[:, 2])
        chunk[:, k] = np.clip((aim - at) / (_GENTLE * STEP_M), -1, 1)
        at = np.clip(at + STEP_M * chunk[:, k], REACH_BOX[0], REACH_BOX[1])
    return chunk.astype(np.float32)
