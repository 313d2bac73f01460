"""Find the terms of an objective whose coefficient is 0."""

from __future__ import annotations

from mmrl.objectives.objective import Objective


def zero_coefficients(objective: Objective) -> tuple[bool, ...]:
    """For each term: is its coefficient 0 at this step, so that it has no gradient? Part of the cache key."""
    return tuple(objective.coefficient(name).item() == 0 for name in objective.terms)
