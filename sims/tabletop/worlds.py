"""Many copies of the scene stepped together: arm control on top of `mujoco.batch`, no task logic."""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np
from mujoco.batch import Batch, SimulationError

from sims.tabletop.arm import HOME, JOINTS, OPEN_M, REACH_BOX, STEP_M, joint_targets
from sims.tabletop.scene import SUBSTEPS, Cube, scene_model
from sims.tabletop.task import Start

_POSITION, _CURRENT = mujoco.mjtStage.mjSTAGE_POS.value, mujoco.mjtStage.mjSTAGE_VEL.value
_MAX_SPEED = 100.0  # rad/s; the servos reach about 5, more is a diverged simulation


class Worlds:
    """The physical state of n tables. `tip` and `joints` describe the present, not the substep before."""

    def __init__(self, things: Sequence[Cube], count: int, threads: int):
        self.model = model = scene_model(things)
        # persistent: the next step goes on from the stages that this one ended with, which makes `tip` current for free
        self.batch = Batch(model, count, threads, persistent=True)
        self.things = tuple(things)
        self._bodies = [model.body(thing.name).id for thing in things]
        self.setpoint = np.zeros((count, 3))
        self._qpos, self._qvel = self.batch.bind("qpos"), self.batch.bind("qvel")
        self._ctrl, self._places = self.batch.bind("ctrl"), self.batch.bind("xpos")
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
        return self._places[:, self._bodies]

    @property
    def proprio(self) -> np.ndarray:
        """Tip, set-point minus tip (metres) and joint offsets from home (rad), float32 [n, 13]."""
        parts = [self.tip, self.setpoint - self.tip, self._qpos[:, :JOINTS] - HOME]
        return np.concatenate(parts, axis=1).astype(np.float32)

    def place(self, ids: np.ndarray, starts: Sequence[Start]) -> None:
        """Begin anew in some worlds."""
        self.batch.reset(ids, stage=mujoco.mjtStage.mjSTAGE_NONE.value)
        for k, thing in enumerate(self.things):
            self._put(ids, thing, np.stack([start.objects[k] for start in starts]))
        joints = HOME + np.stack([start.joints for start in starts])
        self._qpos[ids, :JOINTS] = joints
        self._ctrl[ids, :JOINTS] = joints
        self._qpos[ids, JOINTS : JOINTS + 2] = OPEN_M
        self._ctrl[ids, JOINTS:] = OPEN_M
        self.refresh(ids)
        self.setpoint[ids] = self.tip[ids]

    def _put(self, ids: np.ndarray, thing: Cube, centres: np.ndarray) -> None:
        """Set one thing down upright, at rest; centres [k, 3] metres."""
        body = self.model.body(thing.name)
        if thing.ghost:
            self.batch.bind("mocap_pos")[ids, int(body.mocapid[0])] = centres
        else:
            start = int(self.model.jnt_qposadr[body.jntadr[0]])
            self._qpos[ids, start : start + 3] = centres

    def refresh(self, ids: np.ndarray) -> None:
        """Recompute everything that follows from the state."""
        self.batch.forward(ids, stage=_POSITION)

    def control(self, ids: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """One control step: move the set-points by actions [k, 3] in [-1, 1], then the arms after them.

        Returns which of the worlds diverged, bool [k].
        """
        # usually all of them: then nothing is gathered
        rows = slice(None) if len(ids) == self.batch.nsim else ids
        goal = self.setpoint[rows] + STEP_M * actions
        np.minimum(np.maximum(goal, REACH_BOX[0], out=goal), REACH_BOX[1], out=goal)
        self.setpoint[rows] = goal
        self._ctrl[rows, :JOINTS] = joint_targets(
            self._qpos[rows, :JOINTS],
            self._anchors[rows, :JOINTS],
            self._axes[rows, :JOINTS],
            self.tip[rows],
            self._frame[rows, self._tip].reshape(-1, 3, 3),
            goal,
        )
        raised = np.zeros(len(ids), bool)
        try:
            self.batch.step(ids, nstep=SUBSTEPS, stage=_CURRENT)
        except SimulationError as failure:  # the others ran on; these ended where they were
            raised = np.isin(ids, failure.ids)
        return raised | ~self._sound(rows)

    def _sound(self, rows: np.ndarray | slice) -> np.ndarray:
        """Which worlds still have numbers that physics can have, bool [k]."""
        # NaN compares False
        return np.isfinite(self._qpos[rows]).all(1) & (np.abs(self._qvel[rows]) < _MAX_SPEED).all(1)

    def state_dict(self) -> dict[str, np.ndarray]:
        return {"physics": self.batch.state.copy(), "setpoint": self.setpoint.copy()}

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        self.batch.state[:] = state["physics"]
        self.setpoint[:] = state["setpoint"]
        self.refresh(np.arange(self.batch.nsim))
