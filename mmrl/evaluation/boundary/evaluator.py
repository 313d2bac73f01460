"""LimitOfRLVR during a run: the boundary of the policy beside that of its start, at every evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from mmrl.core.types import Episode
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.boundary.comparison import compare_boundary
from mmrl.evaluation.boundary.figure import draw_curves
from mmrl.evaluation.boundary.perplexity import OWN, right_perplexities
from mmrl.evaluation.metrics.finished_episodes import count_errors
from mmrl.evaluation.statistics.power import quantile


@dataclass(frozen=True)
class ReasoningBoundary(Evaluator):
    """pass@1 and pass@K of the policy, and what they are beside the start's (LimitOfRLVR).

    K is the number of samples per problem. Against the start: `crossing`, the smallest k from which on the start solves
    at least as much (nan if there is none); `efficiency_gap`, pass@K of the start minus pass@1 of the policy;
    `difference` of pass@K with Student's interval over problems; problems that `both` solve in K samples, that were
    `lost`, `gained`, or that `neither` solves; median perplexities of right answers, if the evaluation has the
    transform `AnswerLogprobs`. Source: arXiv:2504.13837, sections 2 to 4.

    Args:
        score_name: name of a score of 0 or 1 that the task gives.
        level: confidence level of the interval.
    """

    score_name: str = "exact"
    level: float = 0.95

    def __post_init__(self) -> None:
        quantile(self.level)  # refuses an invalid level

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        if not episodes:
            raise ValueError("no episodes to evaluate")
        boundary = compare_boundary("", episodes, episodes, self.score_name)
        perplexities = right_perplexities(episodes, self.score_name, OWN)
        return {
            "pass@1": boundary.after[0],
            f"pass@{boundary.largest}": boundary.after[-1],
            "solved": float(boundary.solved["both"]),
            **({"perplexity": median(perplexities)} if perplexities else {}),
            "errors": count_errors(episodes),
        }

    def against(self, start: Sequence[Episode], episodes: Sequence[Episode]) -> dict[str, float]:
        return compare_boundary("", start, episodes, self.score_name, self.level).numbers()

    def plot(self, axes: Any, start: Sequence[Episode], episodes: Sequence[Episode]) -> bool:
        draw_curves(axes, compare_boundary("", start, episodes, self.score_name, self.level), ("start", "now"))
        return True
