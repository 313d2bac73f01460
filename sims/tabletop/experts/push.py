"""Scripted expert for pushing: down behind the cube, then along the line to the disc."""

from __future__ import annotations

import numpy as np

from sims.tabletop.arm import STEP_M
from sims.tabletop.experts.forecast import GENTLE, Forecast, towards
from sims.tabletop.tasks.push import PushTask
from sims.tabletop.things import CUBE_HALF_M

_CRUISE_M = 0.10  # set-point height over the table while travelling: the fingers clear the cubes
_OVER_M = 0.075  # the fingers pass over a cube
_UNDER_M = 0.045  # low enough to push a cube rather than climb it
_LOW_M = 0.03  # while pushing
_TIP_M = 0.014  # half the width of the closed fingers
_CLEARANCE_M = 0.03  # between the fingers and the cube on the way down
_ON_LINE_M = 0.03  # farther off the line than this, the hand goes up and comes again
_SLOW = 0.7  # of full speed along the line
_STEER = 1.5  # correction per distance off the line


def push(task: PushTask, forecast: Forecast) -> np.ndarray:
    """The next action, [n, 3]."""
    at, cube, disc = forecast.at, forecast.named_object(0), forecast.named_object(1)
    way = (disc - cube)[:, :2]
    distance = np.linalg.norm(way, axis=1)
    way = way / np.maximum(distance, 1e-9)[:, None]
    rows = np.arange(len(at))
    x_axis = forecast.state.turns[rows, forecast.state.named[:, 0], :2, 0]
    lean = np.abs((x_axis * way).sum(1))  # |cos| of the angle between the way and a side of the cube
    touch = CUBE_HALF_M * (lean + np.sqrt(np.maximum(1 - lean**2, 0))) + _TIP_M
    along, across = _split(forecast.tip - cube, way)
    low = forecast.tip[:, 2] < _UNDER_M
    pushing = low & (along < 0.015 - touch) & (np.linalg.norm(across, axis=1) < _ON_LINE_M)
    place = cube[:, :2] - (touch + _CLEARANCE_M)[:, None] * way
    near = np.linalg.norm(at[:, :2] - place, axis=1) < 0.03
    beside = (at[:, 2] < _OVER_M) & ~near  # up first, so as not to sweep things away
    ground = np.where(beside[:, None], at[:, :2], place)
    action = towards(forecast, np.column_stack([ground, np.where(near, _LOW_M, _CRUISE_M)]))
    # the hand stands `touch` behind the cube's centre when the cube has arrived; a little more against its lag
    ahead, aside = _split(at - cube, way)
    forward = np.minimum((distance - ahead - touch + 0.01) / GENTLE, _SLOW * STEP_M)
    drive = forward[:, None] * way - _STEER * aside / GENTLE
    drive = np.column_stack([drive, (_LOW_M - at[:, 2]) / GENTLE]) / STEP_M
    action[pushing] = np.clip(drive, -1, 1)[pushing]
    _carry(forecast, action, pushing, way, along, touch)
    return action


def _split(offset: np.ndarray, way: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split horizontal offsets [n, 3] into parts along a way [n, 2] and across it, [n] and [n, 2]."""
    along = (offset[:, :2] * way).sum(1)
    return along, offset[:, :2] - along[:, None] * way


def _carry(
    forecast: Forecast, action: np.ndarray, pushing: np.ndarray, way: np.ndarray, along: np.ndarray, touch: np.ndarray
) -> None:
    """Predict that a cube in the hand's way is pushed ahead of it."""
    ahead = along + STEP_M * (action[:, :2] * way).sum(1)  # the hand moves about as fast as its set-point
    moved = np.where(pushing, np.maximum(ahead + touch, 0), 0)[:, None] * way
    forecast.objects[np.arange(len(moved)), forecast.state.named[:, 0], :2] += moved
