"""Many copies of the scene stepped together: arm control on top of `mujoco.batch`, no task logic."""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np
from mujoco.batch import Batch, SimulationError

from sims.tabletop.arm import HOME, JOINTS, OPEN_M, REACH_BOX, STEP_M, joint_targets
from sims.tabletop.scene import SUBSTEPS
from sims.tabletop.task import Start

_POSITION = mujoco.mjtStage.mjSTAGE_POS.value
_MAX_SPEED = 100.0  # rad/s; the servos reach about 5, more is a diverged simulation


class Worlds:
    """The physical state of n tables. `tip` and `joints` describe the present, not the substep before."""

    def __init__(self, model: mujoco.MjModel, count: int, threads: int):
        self.batch = Batch(model, count, threads)
        self.model = model
        self.setpoint = np.zeros((count, 3))
        self._qpos, self._qvel = self.batch.bind("qpos"), self.batch.bind("qvel")
        self._ctrl, self._mocap = self.batch.bind("ctrl"), self.batch.bind("mocap_pos")
        self._anchors, self._axes = self.batch.bind("xanchor"), self.batch.bind("xaxis")
        self._site, self._frame = self.batch.bind("site_xpos"), self.batch.bind("site_xmat")
        self._tip = model.site("tip").id

    @property
    def tip(self) -> np.ndarray:
        """Point between the fingertips, [n, 3] metres."""
        return self._site[:, self._tip]

    @property
    def objects(self) -> np.ndarray:
        """Centres of the things, [n, K, 3] metres."""
        return self._mocap

    @property
    def proprio(self) -> np.ndarray:
        """Tip, set-point minus tip (metres) and joint offsets from home (rad), float32 [n, 13]."""
        parts = [self.tip, self.setpoint - self.tip, self._qpos[:, :JOINTS] - HOME]
        return np.concatenate(parts, axis=1).astype(np.float32)

    def place(self, ids: np.ndarray, starts: Sequence[Start]) -> None:
        """Begin anew in some worlds."""
        self.batch.reset(ids, stage=mujoco.mjtStage.mjSTAGE_NONE.value)
        self._mocap[ids] = np.stack([start.objects for start in starts])
        joints = HOME + np.stack([start.joints for start in starts])
        self._qpos[ids, :JOINTS] = joints
        self._ctrl[ids, :JOINTS] = joints
        self._qpos[ids, JOINTS : JOINTS + 2] = OPEN_M
        self._ctrl[ids, JOINTS:] = OPEN_M
        self.refresh(ids)
        self.setpoint[ids] = self.tip[ids]

    def refresh(self, ids: np.ndarray) -> None:
        """Recompute everything that follows from the state."""
        self.batch.forward(ids, stage=_POSITION)

    def control(self, ids: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """One control step: move the set-points by actions [k, 3] in [-1, 1], then the arms after them.

        Returns which of the worlds diverged, bool [k].
        """
        self.setpoint[ids] = np.clip(self.setpoint[ids] + STEP_M * actions, REACH_BOX[0], REACH_BOX[1])
        self._ctrl[ids, :JOINTS] = joint_targets(
            self._qpos[ids, :JOINTS],
            self._anchors[ids, :JOINTS],
            self._axes[ids, :JOINTS],
            self.tip[ids],
            self._frame[ids, self._tip].reshape(-1, 3, 3),
            self.setpoint[ids],
        )
        raised = np.zeros(len(ids), bool)
        try:
            self.batch.step(ids, nstep=SUBSTEPS, stage=_POSITION)
        except SimulationError as failure:  # the others ran on; these ended where they were
            raised = np.isin(ids, failure.ids)
        qpos, qvel = self._qpos[ids], self._qvel[ids]
        sound = np.isfinite(qpos).all(1) & (np.abs(qvel) < _MAX_SPEED).all(1)  # NaN compares False
        return raised | ~sound

    def state_dict(self) -> dict[str, np.ndarray]:
        return {"physics": self.batch.state.copy(), "setpoint": self.setpoint.copy()}

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        self.batch.state[:] = state["physics"]
        self.setpoint[:] = state["setpoint"]
        self.refresh(np.arange(self.batch.nsim))
