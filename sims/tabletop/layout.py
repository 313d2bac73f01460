"""Random placement of things on the table by rejection sampling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

PLACES = np.array([[0.36, -0.24], [0.62, 0.24]])  # metres; where the centres of things may lie, x and y
APART_M = 0.13  # least distance between two cubes
_CORNER, _FAR_CORNER, _SIZE = PLACES[0].tolist(), PLACES[1].tolist(), (PLACES[1] - PLACES[0]).tolist()
_TRIES = 10_000

Point = tuple[float, float]
"""x and y, metres. Layouts are drawn with plain numbers: for a handful of things arrays cost ten times as much."""


def scatter(rng: np.random.Generator, heights: Sequence[float], apart_m: float = APART_M) -> np.ndarray:
    """Sample centres of things, uniform among those that keep apart, [len(heights), 3] metres."""
    count, least = len(heights), apart_m**2
    for _ in range(_TRIES):
        places: list[tuple[float, float, float]] = []
        for (u, v), height in zip(rng.random((count, 2)).tolist(), heights):
            x, y = at(u, v)
            if _is_crowded(x, y, places, least):
                break
            places.append((x, y, height))
        else:
            return np.array(places)
    raise ValueError(f"{count} things do not fit on the table {apart_m} m apart; use fewer colours")


def at(u: float, v: float) -> Point:
    """Point at a fraction of the table's width and depth, each in [0, 1]."""
    return _CORNER[0] + _SIZE[0] * u, _CORNER[1] + _SIZE[1] * v


def _is_crowded(x: float, y: float, places: Sequence[tuple[float, float, float]], least: float) -> bool:
    """Whether a place is nearer to another than sqrt(`least`)."""
    return any((x - a) ** 2 + (y - b) ** 2 < least for a, b, _ in places)


def min_distance(places: Sequence[Point]) -> float:
    """Smallest distance between two of the points; infinite for fewer than two."""
    return min((math.dist(a, b) for k, a in enumerate(places) for b in places[:k]), default=math.inf)


def first_valid(draw: Callable[[], np.ndarray | None], what: str) -> np.ndarray:
    """Draw layouts until one is valid (None: rejected)."""
    for _ in range(_TRIES):
        result = draw()
        if result is not None:
            return result
    raise ValueError(f"{what} do not fit on the table; use fewer of them or a shorter distance")


def inside(place: Point, margin_m: float = 0.0) -> bool:
    """Whether a point lies in the area where things are placed, with a margin."""
    (x_min, y_min), (x_max, y_max) = _CORNER, _FAR_CORNER
    x, y = place
    return x_min + margin_m <= x <= x_max - margin_m and y_min + margin_m <= y <= y_max - margin_m


def off_segment(point: Point, a: Point, b: Point) -> float:
    """Distance of a point from the segment between a and b, metres."""
    along = (b[0] - a[0], b[1] - a[1])
    share = ((point[0] - a[0]) * along[0] + (point[1] - a[1]) * along[1]) / max(along[0] ** 2 + along[1] ** 2, 1e-12)
    share = min(max(share, 0.0), 1.0)
    return math.dist(point, (a[0] + share * along[0], a[1] + share * along[1]))
