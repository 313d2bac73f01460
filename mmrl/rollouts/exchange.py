"""A context whose task has another simulator, such as one around its own."""

from __future__ import annotations

import copy
from dataclasses import replace

from mmrl.core.types import Context, Sim


def exchange_sim(ctx: Context, sim: Sim) -> Context:
    """Return the context with a copy of its task that has this simulator."""
    task = copy.copy(ctx.task)
    object.__setattr__(task, "sim", sim)  # tasks are frozen, and what they derive from the simulator is kept
    return replace(ctx, task=task)
