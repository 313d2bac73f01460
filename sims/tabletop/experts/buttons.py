"""Scripted expert for buttons: above the next button, down until it counts, up again."""

from __future__ import annotations

import numpy as np

from sims.tabletop.experts.forecast import Forecast, towards
from sims.tabletop.tasks.buttons import PRESSED_M, ButtonsTask

_CRUISE_M = 0.08  # the fingers clear every button
_NEAR_M = 0.02  # near enough to come down, horizontally
_PRESS_M = 0.012  # set-point under the top of the cap at rest, beyond what counts
_TOP_M = 0.014  # of the cap over its centre


def buttons(task: ButtonsTask, forecast: Forecast) -> np.ndarray:
    """The next action, [n, 3]."""
    at, rows = forecast.at, np.arange(len(forecast.at))
    place = forecast.state.origin[rows, forecast.state.named[rows, task.due(forecast.memory)]]
    top = place[:, 2] + _TOP_M
    near = np.linalg.norm((at - place)[:, :2], axis=1) < _NEAR_M
    low = (at[:, 2] < _CRUISE_M - 0.02) & ~near
    ground = np.where(low[:, None], at[:, :2], place[:, :2])
    action = towards(forecast, np.column_stack([ground, np.where(near, top - PRESSED_M - _PRESS_M, _CRUISE_M)]))
    pressed = near & (forecast.tip[:, 2] < top - PRESSED_M) & (forecast.memory[:, 0] < task.presses)
    forecast.memory[:, 0] += pressed
    return action
