"""Object-tracking reward: how near the object is to where the demonstration had it.

Source: Lum et al., "Crossing the Human-Robot Embodiment Gap with Sim-to-Real RL using One Human Demonstration", 2025,
arXiv:2504.12609; constants as in the released code, tylerlum/human2sim2robot.
"""

from __future__ import annotations

import numpy as np

from sims.tabletop.things import CUBE_HALF_M

SHARPNESS = 10.0  # per metre
FAR_FACTOR = 0.1
CORNERS = CUBE_HALF_M * np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], np.float64)
"""Keypoints of a cube in its own axes, [8, 3] metres."""


def compute_keypoint_error(
    centre: np.ndarray,  # [n, 3] metres
    turn: np.ndarray,  # [n, 3, 3]
    target: np.ndarray,  # [n, 3] metres
    target_yaw: np.ndarray,  # [n] rad
) -> np.ndarray:
    """Mean distance of the object's keypoints from where the demonstration had them, [n] metres."""
    wanted = np.zeros_like(turn)
    wanted[:, 0, 0] = wanted[:, 1, 1] = np.cos(target_yaw)
    wanted[:, 1, 0], wanted[:, 2, 2] = np.sin(target_yaw), 1
    wanted[:, 0, 1] = -wanted[:, 1, 0]
    way = (centre - target)[:, None] + CORNERS @ (turn - wanted).transpose(0, 2, 1)
    return np.sqrt((way**2).sum(-1)).mean(1)


def compute_tracking_reward(
    error: np.ndarray,  # [n] metres, of the keypoints
    hand_distance: np.ndarray,  # [n] metres, of the fingertips from the object
    far_m: float = 0.2,
    hand_m: float = 0.3,
) -> np.ndarray:
    """exp(-10 e), a tenth of it where e is above `far_m`, and 0 where the hand is farther than `hand_m`, [n]."""
    reward = np.exp(-SHARPNESS * error) * np.where(error > far_m, FAR_FACTOR, 1.0)
    return np.where(hand_distance > hand_m, 0.0, reward)
