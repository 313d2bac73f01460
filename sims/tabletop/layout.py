"""Where things may lie: rejection sampling of places on the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

PLACES = np.array([[0.36, -0.24], [0.62, 0.24]])  # metres; where the centres of things may lie, x and y
APART_M = 0.13  # least distance between two cubes
_TRIES = 10_000


def scatter(rng: np.random.Generator, heights: Sequence[float], apart_m: float = APART_M) -> np.ndarray:
    """Centres of things on the table, uniform among those that keep apart, [len(heights), 3] metres."""
    count = len(heights)
    for _ in range(_TRIES):
        places = rng.uniform(PLACES[0], PLACES[1], (count, 2))
        gaps = np.linalg.norm(places[:, None] - places[None], axis=2)[np.triu_indices(count, 1)]
        if gaps.min(initial=np.inf) >= apart_m:
            return np.concatenate([places, np.reshape(heights, (count, 1))], axis=1)
    raise ValueError(f"{count} things do not fit on the table {apart_m} m apart; use fewer colours")


def first_fitting(draw: Callable[[], np.ndarray | None], what: str) -> np.ndarray:
    """The first layout that a drawing accepts (one that is refused is None)."""
    for _ in range(_TRIES):
        found = draw()
        if found is not None:
            return found
    raise ValueError(f"{what} do not fit on the table; use fewer of them or a shorter distance")


def inside(places: np.ndarray, margin_m: float = 0.0) -> bool:
    """Whether all points [..., 2] lie where things may, with this much to spare."""
    return bool(((places >= PLACES[0] + margin_m) & (places <= PLACES[1] - margin_m)).all())


def off_segment(points: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Distance of points [k, 2] from the segment between a and b, [k] metres."""
    along = b - a
    share = np.clip((points - a) @ along / max(float(along @ along), 1e-12), 0, 1)
    return np.linalg.norm(points - (a + share[:, None] * along), axis=1)
