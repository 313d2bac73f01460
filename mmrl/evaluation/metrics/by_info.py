"""Success rates per value of a column of the problems, such as the length of a path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmrl.core.types import Episode
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.metrics.success_rate import SuccessRate
from mmrl.evaluation.statistics.power import quantile


@dataclass(frozen=True)
class SuccessRateByInfo(Evaluator):
    """`SuccessRate` of the problems with each value of a column of `Prompt.info`, as value/metric.

    Args:
        column: name of the column; its values are numbers or words.
        score_name: name of a score of 0 or 1 that the task gives.
        level: confidence level of the intervals.
    """

    column: str
    score_name: str = "exact"
    level: float = 0.95

    def __post_init__(self) -> None:
        quantile(self.level)  # refuses an invalid level

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        groups: dict[str, list[Episode]] = {}
        for episode in sorted(episodes, key=self._value):
            groups.setdefault(str(self._value(episode)), []).append(episode)
        rate = SuccessRate(self.score_name, self.level)
        return {f"{value}/{name}": number for value, part in groups.items() for name, number in rate(part).items()}

    def _value(self, episode: Episode):
        info = episode.prompt.info
        if self.column not in info:
            raise KeyError(
                f"the problem {episode.prompt.key!r} has no info {self.column!r}; it has {sorted(info)}. Name one of "
                "them as the column of this evaluator"
            )
        return info[self.column]
