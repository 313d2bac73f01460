"""How often a problem is solved with so much of its solution shown: a curve fitted to a few rounds of completions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

USUAL = {"slope": 10.0, "place": -0.5, "floor": 0.1}
"""What is expected before anything is known: half is solved when a little less than half is shown."""
FAITH = 0.002
"""What a distance of one unit (a factor of e, half of the solution, a fifth of all completions) from that counts, in
squared errors of the accuracy: little beside any measurement, enough to make one point tell a curve."""


@dataclass(frozen=True)
class Response:
    """f(p) = b + (1 - b) / (1 + exp(-k (p + mu))), the accuracy with the share p of the solution shown.

    Source: SEELE, 2025, section 3, arXiv:2509.06923 (three-parameter logistic model of item response theory).
    """

    slope: float  # k > 0
    place: float  # mu
    floor: float  # b in [0, 1)

    def __call__(self, share: float) -> float:
        return float(_curve(share, self.slope, self.place, self.floor))

    def share_for(self, accuracy: float) -> float:
        """The least share in [0, 1] with which the accuracy is expected: -mu - log((1 - b) / (a - b) - 1) / k."""
        if self.floor >= accuracy:
            return 0.0
        odds = (1 - self.floor) / (accuracy - self.floor) - 1
        return float(np.clip(-self.place - np.log(odds) / self.slope, 0.0, 1.0)) if odds > 0 else 1.0


def fitted(points: Sequence[tuple[float, float]]) -> Response:
    """Least squares over (share, accuracy); accuracies at one share are averaged first.

    The best of a grid of curves, which no start and no local minimum can miss.
    """
    seen: dict[float, list[float]] = defaultdict(list)
    for share, accuracy in points:
        seen[share].append(accuracy)
    slope, place, floor, unusual = _grid()
    error = unusual.copy()
    for share, accuracies in seen.items():
        error += (_curve(share, slope, place, floor) - np.mean(accuracies)) ** 2
    best = int(error.argmin())
    return Response(float(slope[best]), float(place[best]), float(floor[best]))


def _curve(share, slope, place, floor):
    return floor + (1 - floor) / (1 + np.exp(-slope * (share + place)))


@lru_cache(maxsize=1)
def _grid() -> tuple[np.ndarray, ...]:
    parts = np.meshgrid(np.geomspace(2, 50, 16), np.linspace(-1.3, 0.3, 81), np.linspace(0, 0.6, 13), indexing="ij")
    slope, place, floor = (part.ravel() for part in parts)
    z_scores = (np.log(slope / USUAL["slope"]), (place - USUAL["place"]) / 0.5, (floor - USUAL["floor"]) / 0.2)
    return slope, place, floor, FAITH * sum(z**2 for z in z_scores)  # type: ignore[return-value]
