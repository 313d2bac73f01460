"""Expert of PushT: plans a stroke, executes it, and plans again where the episode leaves the prediction."""

from __future__ import annotations

import numpy as np

from sims.pusht.physics import PushTState
from sims.pusht.planner import Plan, StrokePlanner

_TOLERANCE = 1.0  # px, and hundredths of a radian
_SLACK = 5.0  # control steps by which the stroke at hand may have become worse before another is planned


class StrokeExpert:
    """The actions of one episode.

    Args:
        planner: may serve several experts.
        seed: of the random numbers that planning draws.
    """

    def __init__(self, planner: StrokePlanner, seed: int):
        self._planner, self._rng = planner, np.random.default_rng(seed)
        self._plan: Plan | None = None
        self._done = 0  # control steps of the plan

    def act(self, state: PushTState) -> np.ndarray:
        """The next action, float32 [2]."""
        plan = self._plan
        if plan is None or self._done >= len(plan.actions):
            plan = self._begin(self._planner.plan(state, self._rng))
        elif not is_near(state, plan.states[self._done]):
            again = self._planner.try_stroke(state, plan.stroke)
            expected = plan.cost - self._done
            plan = self._begin(again if again.cost < expected + _SLACK else self._planner.plan(state, self._rng))
        self._done += 1
        return plan.actions[self._done - 1]

    def _begin(self, plan: Plan) -> Plan:
        self._plan, self._done = plan, 0
        return plan


def is_near(state: PushTState, other: PushTState) -> bool:
    """Whether two states have the same places, within a pixel or a hundredth of a radian."""
    scale = np.array([1, 1, 1, 1, 100])
    difference = np.subtract((*state.pusher, *state.block), (*other.pusher, *other.block)) * scale
    return bool(np.abs(difference).max() < _TOLERANCE)
