"""Straight strokes of PushT's pusher against the block, and a table of what each does to the block's pose."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sims.pusht.outline import PERIMETER, RADIUS, locate, measure_clearance
from sims.pusht.paths import cost_arrivals, cost_paths
from sims.pusht.physics import PhysicsCopy, PushTState, read_state
from sims.pusht.poses import GYRATION, move, to_local, to_pose

GAP = 8.0
"""Between pusher and block where a stroke starts (px, along the stroke)."""
PACE, PUSH_PACE, PAUSE, SETTLE = 28.0, 14.0, 2, 3
"""The target's pace on the way and in a stroke (px a control step); control steps of rest before and after a stroke."""
_PLACES = np.arange(6.0, PERIMETER, 12.0)
_ANGLES = (-0.6, -0.3, 0.0, 0.3, 0.6)
_LENGTHS = (3.0, 6.0, 10.0, 15.0, 22.0, 30.0, 40.0, 52.0, 66.0, 82.0, 100.0)
_SPEED = 150.0  # px/s
_MIDDLE = (256.0, 256.0, 0.0)  # where the tabulated block stands, far from the walls


def locate_strokes(strokes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places of the pusher at the start and the end of strokes, [n, 2] each, in the block's frame.

    Args:
        strokes: distance of the contact along the outline (px), angle from the inward normal (rad), and length after
            the contact (px), [n, 3].
    """
    point, normal = locate(strokes[:, 0])
    cos, sin = np.cos(strokes[:, 1]), np.sin(strokes[:, 1])
    direction = -np.stack([cos * normal[:, 0] - sin * normal[:, 1], sin * normal[:, 0] + cos * normal[:, 1]], axis=1)
    contact = point + RADIUS * normal
    return contact - GAP * direction, contact + strokes[:, 2:] * direction


class StrokeTable(NamedTuple):
    """Strokes of different starts and lengths, all in the frame of the block before the stroke.

    Attributes:
        strokes: as of `locate_strokes`, [m, 3].
        which: each one's start, an index of `starts`, [m].
        starts: places of the pusher, [s, 2].
        ends: place of the pusher after each, [m, 2].
        shifts: of the block's centre of gravity (px) and angle (rad), [m, 3].
        steps: control steps of each, without the way to its start, [m].
        arrivals: `cost_arrivals(starts)`.
        further: control steps of the way from each one's end to every start, [m, s].
    """

    strokes: np.ndarray
    which: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    shifts: np.ndarray
    steps: np.ndarray
    arrivals: np.ndarray
    further: np.ndarray

    def count_steps(self, pusher: np.ndarray) -> np.ndarray:
        """Control steps of the way from a place to every start, [s]."""
        return cost_paths(pusher, self.starts, self.arrivals) / PACE


def build_table(physics: PhysicsCopy) -> StrokeTable:
    """Try every stroke of a grid on a block that stands free of walls."""
    grid = np.array([(place, angle, 0.0) for place in _PLACES for angle in _ANGLES])
    starts, contacts = locate_strokes(grid)
    free = measure_clearance(starts) > RADIUS + 2
    grid, starts, contacts = grid[free], starts[free], contacts[free]
    rows = [
        (*grid[k, :2], length, k, *end, *shift)
        for k in range(len(grid))
        for length, end, shift in _push(physics, starts[k], contacts[k])
        if np.hypot(*shift[:2]) + GYRATION * abs(shift[2]) > 0.5
    ]
    columns = np.array(rows)
    strokes, which, ends, shifts = columns[:, :3], columns[:, 3].astype(int), columns[:, 4:6], columns[:, 6:]
    steps = PAUSE + (strokes[:, 2] + GAP) / PUSH_PACE + SETTLE
    table = StrokeTable(strokes, which, starts, ends, shifts, steps, cost_arrivals(starts), np.zeros(0))
    moved = move(to_pose((0.0, 0.0, 0.0)), shifts)
    return table._replace(further=np.stack([table.count_steps(to_local(end, to)) for end, to in zip(ends, moved)]))


def _push(physics: PhysicsCopy, start: np.ndarray, contact: np.ndarray) -> list[tuple[float, np.ndarray, np.ndarray]]:
    """One stroke at constant speed: at several lengths the pusher's place and the block's shift."""
    direction = (contact - start) / GAP
    before, place = to_pose(_MIDDLE), start + _MIDDLE[:2]
    physics.set_state(PushTState(tuple(place), tuple(_SPEED * direction), _MIDDLE, (0.0, 0.0, 0.0)))
    samples, travelled = [], -GAP
    for length in _LENGTHS:
        while travelled < length:
            physics.space.step(physics.dt)
            travelled += _SPEED * physics.dt
        state = read_state(physics)
        samples.append((travelled, np.array(state.pusher) - _MIDDLE[:2], to_pose(state.block) - before))
    return samples
