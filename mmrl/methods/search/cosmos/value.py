"""COS(M+O)S: the value of a story so far from curiosity and coherence."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.rewards.judges.questions import Reply, Unreadable


def index_surprise(surprisal: float, best: float, width: float = 1.0) -> float:
    """exp(-(s - best)^2 / (2 width^2)) of a mean surprisal s in nats per token: an inverted U."""
    return math.exp(-((surprisal - best) ** 2) / (2 * width**2))


@dataclass(frozen=True)
class StoryValue:
    """Value of a story: bias + a index_surprise(s) + b coherence, with the peak and the width of the inverted U.

    Args:
        best: surprisal at the peak, in nats per token.
        width: of the inverted U.
        weights: bias, a and b.
    """

    best: float
    width: float
    weights: tuple[float, float, float]

    def __call__(self, surprisal: float, coherence: float) -> float:
        bias, curiosity, order = self.weights
        return bias + curiosity * index_surprise(surprisal, self.best, self.width) + order * coherence

    @classmethod
    def fit(cls, surprisals: Sequence[float], coherences: Sequence[float], ratings: Sequence[float]) -> StoryValue:
        """Fit to rated stories: least squares for the weights, and the best of a grid for peak and width.

        The grid has peaks at 21 quantiles of the surprisals, and widths of .5, 1 and 2 standard deviations. Weights of
        curiosity below 0 would turn the U around, so a peak that has one is left out, unless all have.
        """
        s, c, y = (np.asarray(values, dtype=float) for values in (surprisals, coherences, ratings))
        if len(s) < 4:
            raise ValueError(f"a value of stories needs at least 4 rated ones, got {len(s)}; raise rollout.rated")
        fits = []
        spread = max(float(s.std()), 1e-3)
        for best in np.quantile(s, np.linspace(0, 1, 21)):
            for width in (0.5 * spread, spread, 2 * spread):
                liked = np.exp(-((s - best) ** 2) / (2 * width**2))
                features = np.stack([np.ones_like(s), liked, c], axis=1)
                weights = np.linalg.lstsq(features, y, rcond=None)[0]
                error = float(((features @ weights - y) ** 2).mean())
                fits.append((weights[1] < 0, error, float(best), width, weights))
        _, _, best, width, weights = min(fits, key=lambda fit: fit[:2])
        return cls(best, width, (float(weights[0]), float(weights[1]), float(weights[2])))


QUESTION = "How coherent is this story, from 0 (not at all) to 10 (fully)? End with the number.\n\n{story}"


def read_coherence(reply: Reply) -> float:
    """Return the last number of a reply, from 0 to 10, as a share."""
    numbers = re.findall(r"\d+(?:\.\d+)?", reply.text)
    if not numbers or float(numbers[-1]) > 10:
        raise Unreadable("no number from 0 to 10 ends it")
    return float(numbers[-1]) / 10
