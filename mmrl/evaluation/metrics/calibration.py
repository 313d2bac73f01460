"""Calibration of a reward model: whether pairs that it orders with probability p are ordered right that often."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mmrl.core.errors import check_at_least
from mmrl.core.types import Episode
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.metrics.finished_episodes import count_errors, drop_errors, get_score
from mmrl.evaluation.report.plots import COLOURS


@dataclass(frozen=True)
class Calibration(Evaluator):
    """Calibration of the margins of pairs, whose Bradley-Terry probability is sigmoid(margin).

    A pair is ordered with confidence c = sigmoid(|margin|) >= 1/2, and rightly if its margin is positive. `ece`, the
    expected calibration error, is sum_b n_b / n |accuracy_b - mean confidence_b| over bins of equal width; `confidence`
    is the mean, `nll` the mean of -log sigmoid(margin) in nats, and `brier` the mean of (1 - sigmoid(margin))^2. A
    margin of 0 is wrong. The plot shows accuracy over confidence. Source: On Calibration of Modern Neural Networks,
    2017, equation 3, arXiv:1706.04599.

    Args:
        score_name: name of the score that is a margin.
        bins: between 1/2 and 1.
    """

    score_name: str = "margin"
    bins: int = 10

    plots_alone = True

    def __post_init__(self) -> None:
        check_at_least(1, "calibration", bins=self.bins)

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        margins = [get_score(episode, self.score_name) for episode in drop_errors(episodes)]
        n = len(margins)
        if not n:
            return dict.fromkeys(("ece", "confidence", "nll", "brier"), math.nan) | {"errors": count_errors(episodes)}
        # of a positive margin the smaller exponent, so that none overflows
        nll = [math.log1p(math.exp(-abs(m))) + max(-m, 0.0) for m in margins]
        return {
            "ece": sum(count / n * abs(accuracy - mean) for mean, accuracy, count in self.group(margins)),
            "confidence": sum(map(_confidence, margins)) / n,
            "nll": sum(nll) / n,
            "brier": sum((1 - math.exp(-loss)) ** 2 for loss in nll) / n,
            "n": float(n),
            "errors": count_errors(episodes),
        }

    def group(self, margins: Sequence[float]) -> list[tuple[float, float, int]]:
        """Mean confidence, accuracy and number of pairs of each bin that has some."""
        by_bin: dict[int, list[float]] = {}
        for margin in margins:
            place = min(int((_confidence(margin) - 0.5) * 2 * self.bins), self.bins - 1)
            by_bin.setdefault(place, []).append(margin)
        return [
            (sum(map(_confidence, part)) / len(part), sum(margin > 0 for margin in part) / len(part), len(part))
            for _, part in sorted(by_bin.items())
        ]

    def plot(self, axes: Any, start: Sequence[Episode], episodes: Sequence[Episode]) -> bool:
        axes.plot([0.5, 1], [0.5, 1], color="0.7", linewidth=1)
        sides = (("now", episodes),) if start is episodes else (("start", start), ("now", episodes))
        for colour, (label, side) in zip(COLOURS[len(sides) - 1 :: -1], sides):
            groups = self.group([get_score(episode, self.score_name) for episode in drop_errors(side)])
            confidence, accuracy, counts = zip(*groups)
            axes.plot(confidence, accuracy, "-", color=colour, label=f"{label}, ECE {self(side)['ece']:.3f}")
            sizes = [4 + 60 * count / sum(counts) for count in counts]
            axes.scatter(confidence, accuracy, s=sizes, color=colour)
        axes.set_xlabel("confidence")
        axes.set_ylabel("accuracy")
        axes.legend(frameon=False)
        return True


def _confidence(margin: float) -> float:
    return 1 / (1 + math.exp(-abs(margin)))
