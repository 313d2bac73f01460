"""The arm: MJCF body, servos and inverse kinematics."""

from __future__ import annotations

import numpy as np

JOINTS = 7
HOME = np.array([0.0, 0.4504, 0.0, 1.9570, 0.0, 0.7342, 0.0])  # rad; hand straight down, fingertips at .42 0 .25
STEP_M = 0.03  # how far a full action moves the set-point in one control step, per axis
REACH_BOX = np.array([[0.30, -0.28, 0.04], [0.66, 0.28, 0.36]])  # metres; the set-point stays inside
OPEN_M = 0.035  # each finger, from the middle
SHUT_M = 0.002  # each finger; the two never touch, which would cost contacts
_DAMPING = 0.05  # of the least squares, in metres
_POSTURE = 0.1  # pull towards HOME in the joint direction that does not move the hand
_MAX_TURN = 0.6  # rad that one control step may ask of a joint

# arm links do not collide; fingers do, with things that are not ghosts
ARM_XML = """
    <body name="link1" pos="0 0 .04" gravcomp="1" childclass="arm">
      <joint name="j1" axis="0 0 1" range="-2.6 2.6"/>
      <geom type="capsule" fromto="0 0 .03 0 0 .22" size=".06" mass="2.5"/>
      <body name="link2" pos="0 0 .30" gravcomp="1">
        <joint name="j2" axis="0 1 0" range="-1.6 1.9"/>
        <geom class="metal" type="cylinder" fromto="0 -.075 0 0 .075 0" size=".055" mass="1"/>
        <geom type="capsule" fromto="0 0 .04 0 0 .34" size=".047" mass="1.6"/>
        <body name="link3" pos="0 0 .19" gravcomp="1">
          <joint name="j3" axis="0 0 1" range="-2.6 2.6"/>
          <inertial pos="0 0 0" mass=".3" diaginertia=".001 .001 .001"/>
          <body name="link4" pos="0 0 .19" gravcomp="1">
            <joint name="j4" axis="0 1 0" range=".05 2.7"/>
            <geom class="metal" type="cylinder" fromto="0 -.065 0 0 .065 0" size=".047" mass=".7"/>
            <geom type="capsule" fromto="0 0 .04 0 0 .34" size=".039" mass=".9"/>
            <body name="link5" pos="0 0 .22" gravcomp="1">
              <joint name="j5" axis="0 0 1" range="-2.6 2.6" armature=".03"/>
              <inertial pos="0 0 0" mass=".2" diaginertia=".0005 .0005 .0005"/>
              <body name="link6" pos="0 0 .16" gravcomp="1">
                <joint name="j6" axis="0 1 0" range="-1.2 2.6" armature=".03"/>
                <geom class="metal" type="cylinder" fromto="0 -.05 0 0 .05 0" size=".037" mass=".4"/>
                <body name="hand" pos="0 0 .05" gravcomp="1">
                  <joint name="j7" axis="0 0 1" range="-2.9 2.9" armature=".02"/>
                  <geom class="metal" type="box" size=".022 .052 .016" pos="0 0 .012" mass=".25"/>
                  <site name="tip" pos="0 0 .10" size=".005"/>
                  <body name="finger_left" pos="0 0 .03" gravcomp="1">
                    <joint name="f1" class="finger" axis="0 1 0"/>
                    <geom class="finger" type="box" size=".011 .007 .037" pos="0 .007 .035"/>
                  </body>
                  <body name="finger_right" pos="0 0 .03" gravcomp="1">
                    <joint name="f2" class="finger" axis="0 -1 0"/>
                    <geom class="finger" type="box" size=".011 .007 .037" pos="0 -.007 .035"/>
                  </body>
                </body>
              </body>
            </body>
          </body>
        </body>
      </body>
    </body>
"""

_SERVOS = {1: (400, 40), 2: (400, 40), 3: (400, 40), 4: (400, 30), 5: (200, 12), 6: (200, 12), 7: (100, 6)}
GAINS = "\n    ".join(
    [f'<position name="j{i}" joint="j{i}" kp="{kp}" kv="{kv}"/>' for i, (kp, kv) in _SERVOS.items()]
    + [f'<position name="f{i}" joint="f{i}" kp="200" kv="6" ctrlrange="0 .04"/>' for i in (1, 2)]
)

_DAMPED = _DAMPING**2 * np.eye(6)


def joint_targets(
    joints: np.ndarray, anchors: np.ndarray, axes: np.ndarray, tip: np.ndarray, frame: np.ndarray, goal: np.ndarray
) -> np.ndarray:
    """Inverse kinematics: joint angles that bring the tip nearer to the goal with the hand upright, [n, 7] rad.

    dq = J' (J J' + d^2 I)^-1 e + p (I - J' (J J' + d^2 I)^-1 J)(home - q), e = (goal - tip, turn to upright).
    Source: Nakamura and Hanafusa, "Inverse kinematic solutions with singularity robustness", 1986, eq. 13.

    Args:
        joints: [n, 7] rad, measured.
        anchors: [n, 7, 3] a point on every joint axis, metres.
        axes: [n, 7, 3] unit joint axes in the environment.
        tip: [n, 3] metres.
        frame: [n, 3, 3] the tip's rotation.
        goal: [n, 3] metres.
    """
    jacobian = _jacobian(anchors, axes, tip)
    error = np.empty((len(joints), 6))
    np.subtract(goal, tip, out=error[:, :3])
    # half the sum of column x wanted column, the wanted ones being -x, y and -z
    error[:, 3] = frame[:, 2, 1] + frame[:, 1, 2]
    error[:, 4] = frame[:, 2, 0] - frame[:, 0, 2]
    error[:, 5] = -frame[:, 0, 1] - frame[:, 1, 0]
    error[:, 3:] *= -0.5
    rest = _POSTURE * (HOME - joints)
    error -= (jacobian @ rest[:, :, None])[:, :, 0]
    square = jacobian @ jacobian.transpose(0, 2, 1)
    square += _DAMPED
    solved = np.linalg.solve(square, error[:, :, None])
    change = (solved.transpose(0, 2, 1) @ jacobian)[:, 0]
    change += rest
    return joints + np.minimum(np.maximum(change, -_MAX_TURN), _MAX_TURN)


def _jacobian(anchors: np.ndarray, axes: np.ndarray, tip: np.ndarray) -> np.ndarray:
    """Jacobian of the tip, translation (axis x lever) and rotation (axis) per joint, [n, 6, 7]."""
    # one quantity after the other, the first two once more at the end: long runs, few calls
    rows, axis, lever = (np.empty((count, *axes.shape[:2])) for count in (6, 5, 5))
    axis[:3] = axes.transpose(2, 0, 1)
    np.subtract(tip.T[:, :, None], anchors.transpose(2, 0, 1), out=lever[:3])
    axis[3:], lever[3:] = axis[:2], lever[:2]
    np.multiply(axis[1:4], lever[2:], out=rows[:3])
    rows[:3] -= axis[2:] * lever[1:4]
    rows[3:] = axis[:3]
    return rows.transpose(1, 0, 2)
