"""Pareto front of several scores over groups of episodes, such as those of one preference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mmrl.core.types import Episode
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.metrics.finished_episodes import count_errors, drop_errors, get_score
from mmrl.evaluation.report.plots import COLOURS
from mmrl.evaluation.statistics.pareto import hypervolume, select_front


@dataclass(frozen=True)
class ParetoFront(Evaluator):
    """Mean scores of each value of a column, the points; the volume that they dominate, and how many are on the front.

    `hypervolume` is the area under the front of two scores. `front` counts the points that no other one dominates,
    `points` all of them; VALUE/SCORE is the mean of a score over the finished episodes of a value, `errors` the number
    of episodes left out.

    Args:
        scores: names of at least two scores, of which more is better.
        column: column of `Prompt.info` whose values are the points; None for one point, the policy.
        reference: the corner below all points, by score; points that are not above it add no volume. None for 0.
    """

    scores: Sequence[str]
    column: str | None = None
    reference: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.scores, str) or len(set(self.scores)) < max(2, len(self.scores)):
            raise ValueError(f"evaluator.scores must name at least two different scores, got {self.scores!r}")
        if self.reference is not None and len(self.reference) != len(self.scores):
            raise ValueError(f"evaluator.reference needs {len(self.scores)} numbers, got {list(self.reference)}")

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        points = self.points(episodes)
        values = list(points.values())
        means = {f"{key}/{name}": x for key, point in points.items() for name, x in zip(self.scores, point)}
        return {
            "hypervolume": hypervolume(values, self.reference or [0.0] * len(self.scores)),
            "front": float(len(select_front(values))),
            "points": float(len(values)),
            **means,
            "errors": count_errors(episodes),
        }

    def points(self, episodes: Sequence[Episode]) -> dict[str, list[float]]:
        """Mean scores by value of the column, in the order of the values."""
        groups: dict[str, list[Episode]] = {}
        for episode in drop_errors(episodes):
            groups.setdefault(self._value(episode), []).append(episode)
        return {
            value: [sum(get_score(e, name) for e in part) / len(part) for name in self.scores]
            for value, part in sorted(groups.items())
        }

    def _value(self, episode: Episode) -> str:
        if self.column is None:
            return "all"
        if self.column not in episode.prompt.info:
            raise KeyError(
                f"the problem {episode.prompt.key!r} has no info {self.column!r}; it has "
                f"{sorted(episode.prompt.info)}. "
                "Name one of them as evaluator.column, or null for one point"
            )
        return str(episode.prompt.info[self.column])

    def plot(self, axes: Any, start: Sequence[Episode], episodes: Sequence[Episode]) -> bool:
        for colour, label, side in zip(COLOURS[1::-1], ("start", "now"), (start, episodes)):
            points = sorted(self.points(side).values())
            axes.plot([p[0] for p in points], [p[1] for p in points], "o-", color=colour, label=label, markersize=4)
        axes.set_xlabel(self.scores[0])
        axes.set_ylabel(self.scores[1])
        axes.legend(frameon=False)
        return True
