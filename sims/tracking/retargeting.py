"""Inverse kinematics of a whole reach: the posture whose fingertips are at a point, with the hand upright."""

from __future__ import annotations

from functools import cache

import mujoco
import numpy as np

from sims.tabletop.arm import HOME, JOINTS, joint_targets
from sims.tabletop.scene import scene_model

TOLERANCE_M = 0.005
_STEPS = 60


@cache
def _arm() -> mujoco.MjModel:
    return scene_model((), 0.01)


def solve_posture(goal: np.ndarray) -> np.ndarray:
    """Joint angles whose fingertips are at `goal`, [7] rad.

    Args:
        goal: [3] metres.

    Raises:
        ValueError: no posture was found within 5 mm.
    """
    model = _arm()
    data, tip = mujoco.MjData(model), model.site("tip").id
    joints, error = HOME.copy(), np.inf
    for _ in range(_STEPS):
        data.qpos[:JOINTS] = joints
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        error = float(np.linalg.norm(data.site_xpos[tip] - goal))
        if error < TOLERANCE_M / 10:
            break
        joints = joint_targets(
            joints[None],
            data.xanchor[None, :JOINTS],
            data.xaxis[None, :JOINTS],
            data.site_xpos[tip][None],
            data.site_xmat[tip].reshape(1, 3, 3),
            np.asarray(goal, np.float64)[None],
        )[0]
    if not error < TOLERANCE_M:
        raise ValueError(
            f"the arm does not reach {np.round(goal, 3).tolist()} (within {1000 * error:.1f} mm); move the "
            "demonstration, or make sim.object_m smaller"
        )
    return joints
