"""Scripted expert for picking, placing and stacking: above the cube, down, close, up, above the place, down, open."""

from __future__ import annotations

import numpy as np

from sims.tabletop.arm import OPEN_M, SHUT_M, STEP_M
from sims.tabletop.experts.forecast import FOLLOWS, Forecast, towards
from sims.tabletop.tasks.placing import BLOCK_HALF_M, PlacingTask

_CRUISE_M = 0.13  # height of the fingertips while travelling
_CLEAR_M = 0.05  # height of a held cube over where it belongs while travelling
_OVER_M = 0.015  # near enough to come down, horizontally
_HELD_M = 0.004  # the gap may be this much wider than the cube it holds
_CLOSES = 0.6  # of the way to its target that the gap makes in a control step, about
_SLACK_M = 0.006  # above its place a cube is let go


def grasp(task: PlacingTask, forecast: Forecast) -> np.ndarray:
    """The next action, [n, 4]."""
    at, tip, cube = forecast.at, forecast.tip, forecast.named_object(0)
    rest = task.target(forecast.state)
    rows = np.arange(len(at))
    home = np.linalg.norm((cube - rest)[:, :2], axis=1) <= 0.7 * task.radius_m
    home &= cube[:, 2] <= rest[:, 2] + _SLACK_M
    around = np.linalg.norm((tip - cube)[:, :2], axis=1) < 0.02
    around &= np.abs(tip[:, 2] - cube[:, 2]) < 0.02
    in_hand = around & (forecast.gap < 2 * BLOCK_HALF_M + _HELD_M)
    # not in the hand: over the cube, then down around it, then close
    flat = np.linalg.norm((at - cube)[:, :2], axis=1)
    fetch = np.column_stack([cube[:, :2], np.where(flat < _OVER_M, cube[:, 2], _CRUISE_M)])
    low = (tip[:, 2] < _CRUISE_M - 0.03) & (flat >= _OVER_M)
    fetch[low, :2] = at[low, :2]
    closing = (np.linalg.norm((tip - cube)[:, :2], axis=1) < 0.012) & (np.abs(tip[:, 2] - cube[:, 2]) < 0.015)
    # in the hand: up, over the place, down
    lift = tip - cube
    distance = np.linalg.norm((cube - rest)[:, :2], axis=1)
    high = cube[:, 2] > rest[:, 2] + 0.7 * _CLEAR_M
    carry = np.column_stack([rest[:, :2], np.where(distance < _OVER_M, rest[:, 2], rest[:, 2] + _CLEAR_M)]) + lift
    rising = ~high & (distance >= _OVER_M)
    carry[rising, :2] = at[rising, :2]
    away = at.copy()
    away[:, 2] = _CRUISE_M
    aim = np.where(in_hand[:, None], carry, fetch)
    let_go = home & (forecast.gap > 2 * BLOCK_HALF_M + _HELD_M)
    aim[home] = at[home]
    aim[let_go] = away[let_go]
    grip = np.where((in_hand | closing) & ~home, -1.0, 1.0)
    action = np.column_stack([towards(forecast, aim), grip])
    _foresee(forecast, action, in_hand & ~home, around, rows)
    return action


def _foresee(forecast: Forecast, action: np.ndarray, in_hand: np.ndarray, around: np.ndarray, rows: np.ndarray) -> None:
    """Predict that a grasped cube moves with the hand, and that fingers stop at a cube between them."""
    moved = FOLLOWS * (forecast.at + STEP_M * action[:, :3] - forecast.tip)
    forecast.objects[rows, forecast.state.named[:, 0]] += np.where(in_hand[:, None], moved, 0)
    opening = 2 * (SHUT_M + (OPEN_M - SHUT_M) * (action[:, 3] + 1) / 2)
    opening = np.where(around, np.maximum(opening, 2 * BLOCK_HALF_M), opening)
    forecast.gap = forecast.gap + _CLOSES * (opening - forecast.gap)
