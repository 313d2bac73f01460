"""Dynamics randomisation: mass, friction and gains per environment."""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np
from mujoco.batch import Batch

from sims.tabletop.arm import JOINTS
from sims.tabletop.things import SceneObject


class Dynamics:
    """Factors of the things' mass and friction and of the arm's servo gains, one of each per environment.

    `factors` [n, 3] are what the environments have now; 1 is the scene as it is written.
    """

    def __init__(self, batch: Batch, model: mujoco.MjModel, things: Sequence[SceneObject]):
        names = [thing.name for thing in things]
        self._bodies = np.array([model.body(name).id for name in names])
        self._geoms = np.flatnonzero(np.isin(model.geom_bodyid, self._bodies))
        self.factors = np.ones((batch.nsim, 3))
        self._fields = {name: batch.expand(name) for name in ("body_mass", "body_inertia", "geom_friction")}
        self._fields |= {name: batch.expand(name) for name in ("actuator_gainprm", "actuator_biasprm")}
        self._scene = {name: np.array(getattr(model, name)) for name in self._fields}
        self._batch = batch

    def vary(self, ids: np.ndarray, factors: np.ndarray) -> None:
        """Set the factors [k, 3] of mass, friction and gains of some environments."""
        mass, friction, gains = factors.T
        self.factors[ids] = factors
        scene, fields = self._scene, self._fields
        fields["body_mass"][np.ix_(ids, self._bodies)] = scene["body_mass"][self._bodies] * mass[:, None]
        inertia = scene["body_inertia"][self._bodies] * mass[:, None, None]
        fields["body_inertia"][np.ix_(ids, self._bodies)] = inertia
        rubbed = scene["geom_friction"][self._geoms] * friction[:, None, None]
        fields["geom_friction"][np.ix_(ids, self._geoms)] = rubbed
        for name in ("actuator_gainprm", "actuator_biasprm"):
            fields[name][np.ix_(ids, np.arange(JOINTS))] = scene[name][:JOINTS] * gains[:, None, None]
        self._batch.set_const(ids)
