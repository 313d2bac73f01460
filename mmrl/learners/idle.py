"""Which terms of an objective cost nothing at present."""

from __future__ import annotations

from mmrl.objectives.objective import Objective


def idle(objective: Objective) -> tuple[bool, ...]:
    """Which terms count for nothing now and are computed without a gradient: part of the key of what runs them."""
    return tuple(objective.coefficient(name).item() == 0 for name in objective.terms)
