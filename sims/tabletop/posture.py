"""Forward kinematics of many environments."""

from __future__ import annotations

from copy import copy

import mujoco
import numpy as np
from mujoco.batch import Batch

_FORCES = int(mujoco.mjtDisableBit.mjDSBL_CONTACT | mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)
_ALONE = 64  # environments that one thread has done before a second would be awake
_PLACES = mujoco.mjtStage.mjSTAGE_POS.value


class Kinematics:
    """Positions and rotations of all bodies, computed from the states of a batch without contacts.

    A step leaves places that are one substep old. Those of the present come from a second batch of the same scene that
    knows no contacts: there they cost a twentieth of a control step, and the environments need not keep an `MjData`
    each, which would cost them more in memory traffic.

    `batch` can be drawn; its arrays follow when `follow` is called.

    Args:
        physics: whose states are followed.
    """

    def __init__(self, physics: Batch):
        scene = copy(physics.model)
        scene.opt.disableflags |= _FORCES
        self.batch = Batch(scene, physics.nsim, physics.nthread if physics.nsim > _ALONE else 1)
        self._physics = physics
        self.bodies, self.turns = self.batch.bind("xpos"), self.batch.bind("xmat")
        self.anchors, self.axes = self.batch.bind("xanchor"), self.batch.bind("xaxis")
        self.sites, self.frames = self.batch.bind("site_xpos"), self.batch.bind("site_xmat")

    def follow(self, ids: np.ndarray | None = None) -> None:
        """Recompute some environments; None: all."""
        rows = slice(None) if ids is None else ids
        self.batch.state[rows] = self._physics.state[rows]
        self.batch.forward(ids, stage=_PLACES)
