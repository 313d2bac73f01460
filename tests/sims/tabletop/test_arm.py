"""The arm's inverse kinematics against the formula written out with cross products."""

import numpy as np

from sims.tabletop.arm import _DAMPING, _MAX_TURN, _POSTURE, HOME, joint_targets

UPRIGHT = np.diag([-1.0, 1.0, -1.0])  # the tip's rotation with the fingers straight down


def test_joint_targets_solve_the_damped_least_squares():
    rng = np.random.default_rng(0)
    for _ in range(20):
        joints, anchors, axes = rng.normal(size=7), rng.normal(size=(7, 3)), rng.normal(size=(7, 3))
        axes /= np.linalg.norm(axes, axis=1, keepdims=True)
        tip, frame = rng.normal(size=3), np.linalg.qr(rng.normal(size=(3, 3)))[0]
        goal = tip + 0.1 * rng.normal(size=3)
        jacobian = np.concatenate([np.cross(axes, tip - anchors), axes], axis=1).T
        turn = 0.5 * sum(np.cross(frame[:, k], UPRIGHT[:, k]) for k in range(3))
        inverse = jacobian.T @ np.linalg.inv(jacobian @ jacobian.T + _DAMPING**2 * np.eye(6))
        change = inverse @ np.concatenate([goal - tip, turn])
        change += (np.eye(7) - inverse @ jacobian) @ (_POSTURE * (HOME - joints))
        wanted = joints + np.clip(change, -_MAX_TURN, _MAX_TURN)
        got = joint_targets(*(part[None] for part in (joints, anchors, axes, tip, frame, goal)))[0]
        np.testing.assert_allclose(got, wanted, atol=1e-11)  # rad; the system's condition number is below 1e4


def test_rows_are_solved_apart():
    """An environment's targets have the same bits alone and beside others."""
    rng = np.random.default_rng(1)
    given = [rng.normal(size=shape) for shape in ((9, 7), (9, 7, 3), (9, 7, 3), (9, 3), (9, 3, 3), (9, 3))]
    together = joint_targets(*given)
    for i in range(9):
        np.testing.assert_array_equal(joint_targets(*(part[i : i + 1] for part in given))[0], together[i])
