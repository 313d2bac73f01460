"""Scripted expert for drawers: down between handle and front, then pull."""

from __future__ import annotations

import numpy as np

from sims.tabletop.experts.forecast import Forecast, towards
from sims.tabletop.tasks.drawer import DrawerTask

_CRUISE_M = 0.125  # over the fronts
_LOW_M = 0.035  # the fingers reach below the handle's bar
_HOOKED_M = 0.05  # lower than this they hold it
_BEHIND_M = 0.027  # from the bar to the middle between it and the front
_BEYOND_M = 0.045  # pulled farther than needed: the hand lags


def drawer(task: DrawerTask, forecast: Forecast) -> np.ndarray:
    """The next action, [n, 3]."""
    at, tip = forecast.at, forecast.tip
    rows = np.arange(len(at))
    bar = forecast.named_object(0)
    slot = bar - np.array([_BEHIND_M, 0, 0])
    near = np.linalg.norm((at - slot)[:, :2], axis=1) < 0.012
    aside = np.abs(tip[:, 1] - bar[:, 1])
    within = (aside < 0.03) & (tip[:, 0] < bar[:, 0]) & (tip[:, 0] > bar[:, 0] - 0.05)
    hooked = within & (tip[:, 2] < _HOOKED_M)
    up = (at[:, 2] < _CRUISE_M - 0.02) & ~near & ~hooked
    aim = np.column_stack([np.where(up[:, None], at[:, :2], slot[:, :2]), np.where(near, _LOW_M, _CRUISE_M)])
    closed = forecast.state.origin[rows, forecast.state.named[:, 0]]
    pull = np.column_stack([closed[:, 0] + task.open_m + _BEYOND_M, bar[:, 1], np.full(len(at), _LOW_M)])
    action = towards(forecast, np.where(hooked[:, None], pull, aim))
    # the bar goes before the fingers
    ahead = forecast.tip[:, 0] + _BEHIND_M / 2 - bar[:, 0]
    forecast.objects[rows, forecast.state.named[:, 0], 0] += np.where(hooked, np.maximum(ahead, 0), 0)
    return action
