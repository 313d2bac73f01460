"""Many copies of the scene stepped together: arm control on top of `mujoco.batch`, no task logic."""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np
from mujoco.batch import Batch, SimulationError

from sims.tabletop.arm import HOME, JOINTS, OPEN_M, REACH_BOX, SHUT_M, STEP_M, joint_targets
from sims.tabletop.dynamics import Dynamics
from sims.tabletop.scene import CONTROL_HZ, scene_model
from sims.tabletop.task import Grip, Start
from sims.tabletop.things import Thing

_POSITION, _CURRENT = mujoco.mjtStage.mjSTAGE_POS.value, mujoco.mjtStage.mjSTAGE_VEL.value
_MAX_SPEED = 100.0  # rad/s; the servos reach about 5, more is a diverged simulation
_FINGERS = slice(JOINTS, JOINTS + 2)


class Worlds:
    """The physical state of n tables. `tip` and `joints` describe the present, not the substep before.

    Args:
        things: on the table.
        count: worlds.
        threads: that step them; 0 takes all CPUs.
        grip: whether the fingers stay open, stay closed or follow the fourth action dimension.
        floor_m: the set-point stays above this height, metres.
        varied: whether worlds differ in mass, friction and gains (`Start.dynamics`).
        timestep: of the physics, seconds.
    """

    def __init__(
        self,
        things: Sequence[Thing],
        count: int,
        threads: int,
        grip: Grip = "open",
        floor_m: float = float(REACH_BOX[0, 2]),
        varied: bool = False,
        timestep: float = 0.005,
    ):
        self.model = model = scene_model(things, timestep)
        self.substeps = round(1 / (CONTROL_HZ * timestep))
        # persistent: the next step goes on from the stages that this one ended with, which makes `tip` current for free
        self.batch = Batch(model, count, threads, persistent=True)
        self.things, self.grip = tuple(things), grip
        self.box = REACH_BOX.copy()
        self.box[0, 2] = floor_m
        self.dynamics = Dynamics(self.batch, model, things) if varied else None
        self._bodies = [model.body(thing.name).id for thing in things]
        self._slides = [k for k, thing in enumerate(things) if thing.slide]
        self._slide_at = [int(model.joint(things[k].slide).qposadr[0]) for k in self._slides]
        self.setpoint = np.zeros((count, 3))
        self._qpos, self._qvel = self.batch.bind("qpos"), self.batch.bind("qvel")
        self._ctrl, self._places = self.batch.bind("ctrl"), self.batch.bind("xpos")
        self._turns = self.batch.bind("xmat")
        self._anchors, self._axes = self.batch.bind("xanchor"), self.batch.bind("xaxis")
        self._site, self._frame = self.batch.bind("site_xpos"), self.batch.bind("site_xmat")
        self._tip = model.site("tip").id

    @property
    def tip(self) -> np.ndarray:
        """Point between the fingertips, [n, 3] metres."""
        return self._site[:, self._tip]

    @property
    def gap(self) -> np.ndarray:
        """Opening between the fingers, [n] metres."""
        return self._qpos[:, _FINGERS].sum(axis=1)

    @property
    def objects(self) -> np.ndarray:
        """Centres of the things, [n, K, 3] metres."""
        return self._places[:, self._bodies]

    @property
    def turns(self) -> np.ndarray:
        """Rotations of the things, [n, K, 3, 3]."""
        return self._turns[:, self._bodies].reshape(-1, len(self._bodies), 3, 3)

    @property
    def travel(self) -> np.ndarray:
        """How far every thing's own joint is from rest, [n, K] metres; 0 for things without one."""
        out = np.zeros((len(self._qpos), len(self.things)))
        out[:, self._slides] = self._qpos[:, self._slide_at]
        return out

    @property
    def proprio(self) -> np.ndarray:
        """Tip, set-point minus tip (metres), joint offsets from home (rad), opening (metres), float32 [n, 14]."""
        parts = [self.tip, self.setpoint - self.tip, self._qpos[:, :JOINTS] - HOME, self.gap[:, None]]
        return np.concatenate(parts, axis=1).astype(np.float32)

    def place(self, ids: np.ndarray, starts: Sequence[Start]) -> None:
        """Begin anew in some worlds."""
        self.batch.reset(ids, stage=mujoco.mjtStage.mjSTAGE_NONE.value)
        for k, thing in enumerate(self.things):
            yaw = np.array([0.0 if start.yaw is None else start.yaw[k] for start in starts])
            self._put(ids, thing, np.stack([start.objects[k] for start in starts]), yaw)
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

    def _put(self, ids: np.ndarray, thing: Thing, centres: np.ndarray, yaw: np.ndarray) -> None:
        """Set one thing down upright, at rest; centres [k, 3] metres, yaw [k] rad."""
        turn = np.stack([np.cos(yaw / 2), 0 * yaw, 0 * yaw, np.sin(yaw / 2)], axis=1)
        if thing.base is not None:
            mocap = int(self.model.body(thing.base).mocapid[0])
            self.batch.bind("mocap_pos")[ids, mocap] = centres
            self.batch.bind("mocap_quat")[ids, mocap] = turn
        else:
            start = int(self.model.jnt_qposadr[self.model.body(thing.name).jntadr[0]])
            self._qpos[ids, start : start + 3] = centres
            self._qpos[ids, start + 3 : start + 7] = turn

    def refresh(self, ids: np.ndarray) -> None:
        """Recompute everything that follows from the state."""
        self.batch.forward(ids, stage=_POSITION)

    def control(self, ids: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """One control step: move the set-points by actions[:, :3] in [-1, 1], then the arms after them.

        Where the grip is free, actions[:, 3] is the wanted opening: 1 open, -1 closed. Returns which of the worlds
        diverged, bool [k].
        """
        # usually all of them: then nothing is gathered
        rows = slice(None) if len(ids) == self.batch.nsim else ids
        goal = self.setpoint[rows] + STEP_M * actions[:, :3]
        np.minimum(np.maximum(goal, self.box[0], out=goal), self.box[1], out=goal)
        self.setpoint[rows] = goal
        self._ctrl[rows, :JOINTS] = joint_targets(
            self._qpos[rows, :JOINTS],
            self._anchors[rows, :JOINTS],
            self._axes[rows, :JOINTS],
            self.tip[rows],
            self._frame[rows, self._tip].reshape(-1, 3, 3),
            goal,
        )
        if self.grip == "free":
            self._ctrl[rows, JOINTS:] = SHUT_M + (OPEN_M - SHUT_M) * (actions[:, 3:4] + 1) / 2
        raised = np.zeros(len(ids), bool)
        try:
            self.batch.step(ids, nstep=self.substeps, stage=_CURRENT)
        except SimulationError as failure:  # the others ran on; these ended where they were
            raised = np.isin(ids, failure.ids)
        return raised | ~self._sound(rows)

    def _sound(self, rows: np.ndarray | slice) -> np.ndarray:
        """Which worlds still have numbers that physics can have, bool [k]."""
        # NaN compares False
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
