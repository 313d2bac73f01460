"""Physics of many copies of the scene: arm control on `mujoco.batch`, no task logic."""

from __future__ import annotations

import math
from collections.abc import Sequence

import mujoco
import numpy as np
from mujoco.batch import Batch, SimulationError

from sims.tabletop.arm import HOME, JOINTS, OPEN_M, REACH_BOX, SHUT_M, STEP_M, joint_targets
from sims.tabletop.dynamics import Dynamics
from sims.tabletop.posture import Kinematics
from sims.tabletop.scene import CONTROL_HZ, scene_model
from sims.tabletop.task import Grip, Start
from sims.tabletop.things import SceneObject

_NOTHING = mujoco.mjtStage.mjSTAGE_NONE.value
_MAX_SPEED = 100.0  # rad/s; the servos reach about 5, more is a diverged simulation
_FINGERS = slice(JOINTS, JOINTS + 2)


class TabletopPhysics:
    """Physical state of n tables. `tip` and `joints` are current, not one substep old.

    Args:
        things: on the table.
        count: environments.
        threads: that step them; 0 takes all CPUs.
        grip: whether the fingers stay open, stay closed or follow the fourth action dimension.
        floor_m: the set-point stays above this height, metres.
        varied: whether environments differ in mass, friction and gains (`Start.dynamics`).
        timestep: of the physics, seconds.
    """

    def __init__(
        self,
        things: Sequence[SceneObject],
        count: int,
        threads: int,
        grip: Grip = "open",
        floor_m: float = float(REACH_BOX[0, 2]),
        varied: bool = False,
        timestep: float = 0.005,
    ):
        self.model = model = scene_model(things, timestep)
        self.substeps = round(1 / (CONTROL_HZ * timestep))
        self.batch = Batch(model, count, threads)
        self.kinematics = Kinematics(self.batch)
        self.things, self.grip = tuple(things), grip
        self.box = REACH_BOX.copy()
        self.box[0, 2] = floor_m
        self.dynamics = Dynamics(self.batch, model, things) if varied else None
        self._bodies = [model.body(thing.name).id for thing in things]
        self._slides = [k for k, thing in enumerate(things) if thing.slide]
        self._slide_at = [int(model.joint(things[k].slide).qposadr[0]) for k in self._slides]
        self._based = [k for k, thing in enumerate(things) if thing.base is not None]
        self._mocaps = [int(model.body(things[k].base).mocapid[0]) for k in self._based]
        free = [k for k, thing in enumerate(things) if thing.base is None]
        self._free = [(k, int(model.jnt_qposadr[model.body(things[k].name).jntadr[0]])) for k in free]
        self.setpoint = np.zeros((count, 3))
        self._qpos, self._qvel, self._ctrl = (self.batch.bind(name) for name in ("qpos", "qvel", "ctrl"))
        self._marks, self._mark_turns = self.batch.bind("mocap_pos"), self.batch.bind("mocap_quat")
        self._tip = model.site("tip").id

    @property
    def tip(self) -> np.ndarray:
        """Point between the fingertips, [n, 3] metres."""
        return self.kinematics.sites[:, self._tip]

    @property
    def gap(self) -> np.ndarray:
        """Opening between the fingers, [n] metres."""
        return self._qpos[:, _FINGERS].sum(axis=1)

    @property
    def objects(self) -> np.ndarray:
        """Centres of the things, [n, K, 3] metres."""
        return self.kinematics.bodies[:, self._bodies]

    @property
    def turns(self) -> np.ndarray:
        """Rotation matrices of the objects, [n, K, 3, 3]."""
        return self.kinematics.turns[:, self._bodies].reshape(-1, len(self._bodies), 3, 3)

    @property
    def travel(self) -> np.ndarray:
        """Joint travel of every thing from rest, [n, K] metres; 0 for things without a joint."""
        out = np.zeros((len(self._qpos), len(self.things)))
        out[:, self._slides] = self._qpos[:, self._slide_at]
        return out

    @property
    def proprio(self) -> np.ndarray:
        """Tip, set-point minus tip (metres), joint offsets from home (rad), opening (metres), float32 [n, 14]."""
        parts = [self.tip, self.setpoint - self.tip, self._qpos[:, :JOINTS] - HOME, self.gap[:, None]]
        return np.concatenate(parts, axis=1).astype(np.float32)

    def place(self, ids: np.ndarray, starts: Sequence[Start]) -> None:
        """Reset some environments to initial states."""
        self.batch.reset(ids, stage=_NOTHING)
        straight = np.zeros(len(self.things))
        self._put(
            ids,
            np.stack([start.objects for start in starts]),
            np.stack([straight if start.yaw is None else start.yaw for start in starts]),
        )
        joints = HOME + np.stack([start.joints for start in starts])
        fingers = SHUT_M if self.grip == "closed" else OPEN_M
        self._qpos[ids, :JOINTS] = joints
        self._ctrl[ids, :JOINTS] = joints
        self._qpos[ids, _FINGERS] = fingers
        self._ctrl[ids, JOINTS:] = fingers
        if self.dynamics is not None:
            self.dynamics.vary(ids, np.array([start.dynamics for start in starts]))
        self.refresh(ids)
        self.setpoint[ids] = self.tip[ids]

    def _put(self, ids: np.ndarray, centres: np.ndarray, yaw: np.ndarray) -> None:
        """Set all things down upright, at rest; centres [k, K, 3] metres, yaw [k, K] rad."""
        turns = np.zeros((*yaw.shape, 4))
        turns[:, :, 0], turns[:, :, 3] = np.cos(yaw / 2), np.sin(yaw / 2)
        if self._based:
            self._marks[ids[:, None], self._mocaps] = centres[:, self._based]
            self._mark_turns[ids[:, None], self._mocaps] = turns[:, self._based]
        for k, start in self._free:
            self._qpos[ids, start : start + 3] = centres[:, k]
            self._qpos[ids, start + 3 : start + 7] = turns[:, k]

    def refresh(self, ids: np.ndarray) -> None:
        """Recompute what follows from the state."""
        self.kinematics.follow(None if len(ids) == self.batch.nsim else ids)

    def control(self, ids: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """One control step: move the set-points by actions[:, :3] in [-1, 1], and the arms towards them.

        Where the grip is free, actions[:, 3] is the wanted opening: 1 open, -1 closed. Returns which of the
        environments diverged, bool [k].
        """
        # usually all of them: then nothing is gathered
        everyone, kinematics = len(ids) == self.batch.nsim, self.kinematics
        rows = slice(None) if everyone else ids
        goal = self.setpoint[rows] + STEP_M * actions[:, :3]
        np.minimum(np.maximum(goal, self.box[0], out=goal), self.box[1], out=goal)
        self.setpoint[rows] = goal
        self._ctrl[rows, :JOINTS] = joint_targets(
            self._qpos[rows, :JOINTS],
            kinematics.anchors[rows, :JOINTS],
            kinematics.axes[rows, :JOINTS],
            kinematics.sites[rows, self._tip],
            kinematics.frames[rows, self._tip].reshape(-1, 3, 3),
            goal,
        )
        if self.grip == "free":
            self._ctrl[rows, JOINTS:] = SHUT_M + (OPEN_M - SHUT_M) * (actions[:, 3:4] + 1) / 2
        moved = None if everyone else ids
        try:
            self.batch.step(moved, nstep=self.substeps)
            raised = None
        except SimulationError as failure:  # the others ran on; these ended where they were
            raised = np.isin(ids, failure.ids)
        if raised is None and self._all_sound(rows):
            kinematics.follow(moved)
            return np.zeros(len(ids), bool)
        diverged = ~self._sound(rows) if raised is None else raised | ~self._sound(rows)
        kinematics.follow(ids[~diverged])
        return diverged

    def _all_sound(self, rows: np.ndarray | slice) -> bool:
        """Whether all those environments have finite and plausible numbers."""
        # NaN compares False
        return bool(np.abs(self._qvel[rows]).max() < _MAX_SPEED) and math.isfinite(self._qpos[rows].sum())

    def _sound(self, rows: np.ndarray | slice) -> np.ndarray:
        """Whether each of them has, bool [k]."""
        return np.isfinite(self._qpos[rows]).all(1) & (np.abs(self._qvel[rows]) < _MAX_SPEED).all(1)

    def state_dict(self) -> dict[str, np.ndarray]:
        state = {"physics": self.batch.state.copy(), "setpoint": self.setpoint.copy()}
        if self.dynamics is not None:
            state["dynamics"] = self.dynamics.factors.copy()
        return state

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        self.batch.state[:] = state["physics"]
        self.setpoint[:] = state["setpoint"]
        everyone = np.arange(self.batch.nsim)
        if self.dynamics is not None:
            self.dynamics.vary(everyone, state["dynamics"])
        self.refresh(everyone)
