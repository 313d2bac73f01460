"""Plan the chunk of a scripted expert with a predicted state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sims.tabletop.arm import STEP_M
from sims.tabletop.task import TabletopState

GENTLE = 2.5  # control steps that a distance is spread over, so that labels are not all +-1

FOLLOWS = 0.45  # of the way to the set-point that the hand makes in a control step, about


@dataclass
class Forecast:
    """Predicted state of n environments; an expert updates it with the effect of its actions."""

    state: TabletopState  # when the chunk was planned
    box: np.ndarray  # [2, 3] where set-points may be
    at: np.ndarray  # [n, 3] set-point, metres
    tip: np.ndarray  # [n, 3] where the hand is: it lags behind the set-point
    gap: np.ndarray  # [n] opening between the fingers, metres
    objects: np.ndarray  # [n, K, 3] metres
    memory: np.ndarray  # [n, R]

    def named_object(self, place: int) -> np.ndarray:
        """Predicted centres of the things named in this place of the order, [n, 3] metres."""
        return self.objects[np.arange(len(self.at)), self.state.named[:, place]]


Rule = Callable[[Any, Forecast], np.ndarray]
"""(task, forecast) to the next action, [n, 3 or 4]."""


def towards(forecast: Forecast, aim: np.ndarray, gentle: float = GENTLE) -> np.ndarray:
    """Action towards a target: clip(d / (gentle step)), [n, 3]."""
    return np.clip((aim - forecast.at) / (gentle * STEP_M), -1, 1)


def plan(rule: Rule, task: Any, forecast: Forecast, chunk: int, dims: int) -> np.ndarray:
    """Plan a chunk by the rule, float32 [n, chunk, dims]; a gripper that the task does not use gets 0."""
    out = np.zeros((len(forecast.at), chunk, dims))
    for k in range(chunk):
        action = rule(task, forecast)
        out[:, k, : action.shape[1]] = action
        forecast.at = np.clip(forecast.at + STEP_M * action[:, :3], forecast.box[0], forecast.box[1])
        forecast.tip = forecast.tip + FOLLOWS * (forecast.at - forecast.tip)
    return out.astype(np.float32)
