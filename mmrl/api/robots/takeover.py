"""The simulator's scripted expert as the human who takes over a simulated arm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mmrl.api.robots.simulated import SimulatedRobot
from mmrl.core.errors import ConfigError
from mmrl.rollouts.env.takeover import TakeoverRule, sum_distances


class ScriptedTakeover:
    """Give the expert's action in the control steps in which a rule has the human act.

    Args:
        robot: a simulated arm with a scripted expert, whose scores have distances (`sum_distances`).
        rule: when the human acts.
    """

    def __init__(self, robot: SimulatedRobot, rule: TakeoverRule):
        if not hasattr(robot.sim, "expert"):
            raise ConfigError(f"takeover=expert: sim {robot.sim.name!r} has no scripted expert")
        self.robot, self.rule = robot, rule

    def __call__(self, observation: Mapping[str, Any]) -> np.ndarray | None:
        scores = self.robot.feedback().scores
        if scores is None:  # before the first command of an episode
            self.rule.begin(1)
            return None
        distance = sum_distances({name: np.array([value]) for name, value in scores.items()}, self.robot.sim.name)
        return self.robot.expert() if self.rule.decide(distance)[0] else None
