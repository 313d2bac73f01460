"""Scripted experts, one per task, that plan chunks of actions from the state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sims.tabletop.experts.buttons import buttons
from sims.tabletop.experts.drawer import drawer
from sims.tabletop.experts.forecast import Forecast, Rule, plan
from sims.tabletop.experts.grasp import grasp
from sims.tabletop.experts.push import push
from sims.tabletop.experts.reach import reach

if TYPE_CHECKING:
    from sims.tabletop.vector import TabletopVectorEnv

RULES: dict[str, Rule] = {
    "reach": reach,
    "push": push,
    "pick_place": grasp,
    "stack": grasp,
    "drawer": drawer,
    "buttons": buttons,
}
"""By the task's name."""


def expert(env: TabletopVectorEnv) -> np.ndarray:
    """Plan the next chunk of every environment from its state and set-point, float32 [n, chunk, A]."""
    out = np.zeros((env.num_envs, env.chunk, env.action_dims), np.float32)
    everyone = np.arange(env.num_envs)
    for t, table in enumerate(env.tables):
        ids = env.at(t, everyone)
        if not ids.size:
            continue
        state = table.state(ids)
        forecast = Forecast(
            state,
            table.physics.box,
            at=table.physics.setpoint[ids].copy(),
            tip=state.tip.copy(),
            gap=state.gap.copy(),
            objects=state.objects.copy(),
            memory=state.memory.copy(),
        )
        out[ids] = plan(RULES[table.task.name], table.task, forecast, env.chunk, env.action_dims)
    return out
