"""Distance between two paths that looks at place, direction and pace."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

Point = tuple[float, float]
TINY = 1e-12
ANGLE, RATIO = 0.25, 0.10
WORST = math.sqrt(2) + ANGLE * math.pi + RATIO * math.log(10)
"""Distance of corner to corner against the direction, with steps of ten times the length."""


def oriented_frechet(path: Sequence[Point], other: Sequence[Point]) -> float:
    """Discrete Frechet distance: the largest cost of a pair of points, over the best way to go along both paths.

    cost(i, j) = |p_i - q_j| + 0.25 angle(i, j) + 0.1 |ln(l_i / l_j)|, with the angle between the tangents in radians
    and the length l of the step that begins at a point, at the last one of the step that ends there. The tangent is the
    sum of the directions of both steps. Paths are in a unit square and have two points or more.
    Source: VLA-R1, "Enhancing Reasoning in Vision-Language-Action Models", 2025, section 3, arXiv:2510.01623.
    """
    sides = [(points, _tangents(points), _lengths(points)) for points in (path, other)]
    best: list[list[float]] = []
    for i in range(len(path)):
        row: list[float] = []
        for j in range(len(other)):
            before = [*row[-1:], *(best[-1][max(j - 1, 0) : j + 1] if best else [])]
            row.append(max(_cost(sides, i, j), min(before, default=0.0)))
        best.append(row)
    return best[-1][-1]


def frechet_score(path: Sequence[Point], other: Sequence[Point]) -> float:
    """1 for equal paths, less by the share that `oriented_frechet` is of its largest value, and at least 0."""
    return 1 - min(1.0, oriented_frechet(path, other) / WORST)


def _cost(sides: Sequence[tuple], i: int, j: int) -> float:
    (path, tangents, lengths), (other, others, paces) = sides
    (ax, ay), (bx, by) = tangents[i], others[j]
    angle = abs(math.atan2(ax * by - ay * bx, ax * bx + ay * by))  # 0 without a direction, at a step to the same place
    ratio = abs(math.log((lengths[i] + TINY) / (paces[j] + TINY)))
    return math.dist(path[i], other[j]) + ANGLE * angle + RATIO * ratio


def _lengths(points: Sequence[Point]) -> list[float]:
    steps = [math.dist(a, b) for a, b in itertools.pairwise(points)]
    return [*steps, steps[-1]]


def _unit(x: float, y: float) -> Point:
    length = math.hypot(x, y)
    return (0.0, 0.0) if length < TINY else (x / length, y / length)


def _tangents(points: Sequence[Point]) -> list[Point]:
    steps = [_unit(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(points)]
    sums = [_unit(a[0] + b[0], a[1] + b[1]) for a, b in itertools.pairwise(steps)]
    inner = [both if any(both) else before for both, before in zip(sums, steps)]  # a turn back keeps its first half
    return [steps[0], *inner, steps[-1]]
