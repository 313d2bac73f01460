"""Pareto front of points that are better the larger they are, and the volume that they dominate."""

from __future__ import annotations

from collections.abc import Sequence

Point = Sequence[float]


def select_front(points: Sequence[Point]) -> list[int]:
    """Return the indices of the points that no other point dominates: at least as large in all, larger in one.

    Equal points are on the front together.
    """

    def dominates(first: Point, second: Point) -> bool:
        return all(a >= b for a, b in zip(first, second, strict=True)) and any(a > b for a, b in zip(first, second))

    return [i for i, point in enumerate(points) if not any(dominates(other, point) for other in points)]


def hypervolume(points: Sequence[Point], reference: Point) -> float:
    """Compute the volume between a reference and the points: of all that is above it and below one of them.

    With two objectives it is the area under the front. By slices along the last objective: between two of its values
    the others' volume is that of the points above. Source: Zitzler and Thiele, "Multiobjective Optimization Using
    Evolutionary Algorithms", 1998, the size of the dominated space; While et al., "A Faster Algorithm for Calculating
    Hypervolume", 2006, section 2.
    """
    above = [point for point in points if all(a > b for a, b in zip(point, reference, strict=True))]
    if not above:
        return 0.0
    if len(reference) == 1:
        return max(point[0] for point in above) - reference[0]
    levels = sorted({point[-1] for point in above})
    volume = 0.0
    for lower, upper in zip([reference[-1], *levels], levels):
        slices = [point[:-1] for point in above if point[-1] >= upper]
        volume += (upper - lower) * hypervolume(slices, reference[:-1])
    return volume
