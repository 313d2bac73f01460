"""Paths of PushT's pusher around the block, in the block's frame (px)."""

from __future__ import annotations

import numpy as np

from sims.pusht.outline import CORNERS, RADIUS, measure_clearance

_MARGIN = 4.0  # px between pusher and block on a path
_OFFSET = RADIUS + 9.0  # px of the ring from the block's convex hull
_LACK = 20.0  # px of detour that a path makes rather than lack a pixel of the margin
_SAMPLES = np.linspace(0, 1, 13)[:, None]


def _offset_hull() -> np.ndarray:
    """Corners of a ring around the block: its convex hull, each side moved outward by _OFFSET, [6, 2]."""
    hull = CORNERS[[0, 1, 2, 4, 5, 7]]
    sides = np.roll(hull, -1, axis=0) - hull
    normals = np.stack([sides[:, 1], -sides[:, 0]], axis=1) / np.linalg.norm(sides, axis=1, keepdims=True)
    before = np.roll(normals, 1, axis=0)
    return hull + _OFFSET * (before + normals) / (1 + (before * normals).sum(axis=1, keepdims=True))


RING = _offset_hull()


def _measure_ring() -> tuple[dict[tuple[int, int], list[int]], np.ndarray]:
    """The shorter way along the ring between each two of its corners, and its length (px)."""
    count, steps = len(RING), np.linalg.norm(np.roll(RING, -1, axis=0) - RING, axis=1)
    ways, lengths = {}, np.zeros((count, count))
    for i in range(count):
        for j in range(count):
            forward = [(i + k) % count for k in range((j - i) % count + 1)]
            backward = [(i - k) % count for k in range((i - j) % count + 1)]
            options = (steps[forward[:-1]].sum(), forward), (steps[backward[1:]].sum(), backward)
            lengths[i, j], ways[i, j] = min(options, key=lambda option: option[0])
    return ways, lengths


_WAYS, _WAY_LENGTHS = _measure_ring()


def cost_legs(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Lengths of straight legs [...] between places [..., 2], more where they lack clearance.

    A place may itself be nearer to the block than the margin; its legs then need not keep it.
    """
    sampled = measure_clearance(starts[..., None, :] + _SAMPLES * (ends - starts)[..., None, :]) - RADIUS
    needed = np.minimum(_MARGIN, np.minimum(sampled[..., 0], sampled[..., -1]) - 0.1)
    return np.linalg.norm(ends - starts, axis=-1) + _LACK * np.maximum(needed - sampled.min(axis=-1), 0)


def cost_arrivals(ends: np.ndarray) -> np.ndarray:
    """Costs of the legs from every corner of the ring to every place, [n, 6]."""
    return cost_legs(RING[None], ends[:, None])


def cost_paths(start: np.ndarray, ends: np.ndarray, arrivals: np.ndarray) -> np.ndarray:
    """Costs of the best paths from a place [2] to each of `ends` [n], straight or along the ring.

    Args:
        start: where all begin, [2].
        ends: [n, 2].
        arrivals: `cost_arrivals(ends)`.
    """
    corners = (cost_legs(start[None], RING)[:, None] + _WAY_LENGTHS).min(axis=0)
    return np.minimum(cost_legs(start[None], ends), (corners + arrivals).min(axis=1))


def find_path(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Corners of the best path from one place to another, with both, [k, 2]."""
    around = cost_legs(start[None], RING)[:, None] + _WAY_LENGTHS + cost_legs(RING, end[None])
    if cost_legs(start, end) <= around.min():
        return np.stack([start, end])
    i, j = np.unravel_index(around.argmin(), around.shape)
    return np.concatenate([start[None], RING[_WAYS[int(i), int(j)]], end[None]])


def walk(corners: np.ndarray, pace: float) -> np.ndarray:
    """Places along a polyline, one a control step and at most `pace` px apart, without its first point, [n, 2]."""
    lengths = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(corners, axis=0), axis=1))])
    count = max(1, int(np.ceil(lengths[-1] / pace)))
    places = np.linspace(0, lengths[-1], count + 1)[1:]
    return np.stack([np.interp(places, lengths, corners[:, axis]) for axis in range(2)], axis=1)
