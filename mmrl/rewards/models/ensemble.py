"""Ensembles of reward models: mean, minimum, or mean minus a multiple of the standard deviation of their scores."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import Literal

from mmrl.core.errors import check_at_least
from mmrl.core.types import Episode
from mmrl.rewards.base import Reward
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.models.learned import ClassifierReward, list_messages

SCORE, SPREAD = "reward_model", "reward_model_spread"
"""Names of the scores."""


class EnsembleReward(Reward):
    """Reward of an episode: sum_k weights_k * scores_k, with the scores of an ensemble among them.

    `reward_model` is the combined score, `reward_model_spread` the standard deviation over the members, the labels of
    all classifiers. Scores of members are compared as they are: members of one architecture that were trained alike.
    Source: Reward Model Ensembles Help Mitigate Overoptimization, 2023, section 3, arXiv:2310.02743: mean, worst case,
    and uncertainty-weighted (there with the variance).

    Args:
        paths: hub ids or folders of classifiers, each with one or several labels.
        combine: mean, min, or lower: mean - deviations * standard deviation.
        deviations: of combine=lower.
        weights: by name of the score.
        device: where the models run; None takes a GPU where there is one.
        batch_size: answers per forward pass.
    """

    foreign = True

    def __init__(
        self,
        paths: list[str] | None = None,
        combine: Literal["mean", "min", "lower"] = "mean",
        deviations: float = 1.0,
        weights: dict[str, float] | None = None,
        device: str | None = None,
        batch_size: int = 64,
    ):
        if not paths:
            raise ValueError("the reward needs reward.paths=[FOLDER, ...] of trained classifiers")
        if combine not in ("mean", "min", "lower"):
            raise ValueError(f"reward.combine must be mean, min or lower, got {combine!r}")
        check_at_least(0, "reward", deviations=deviations)
        self.members = [ClassifierReward(path, device, batch_size) for path in paths]
        self.combine, self.deviations, self.weights = combine, deviations, weights or {SCORE: 1.0}

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        messages, tools = [list_messages(e) for e in episodes], [list(e.prompt.tools) for e in episodes]
        by_model = [member.score_heads(messages, tools) for member in self.members]
        each = [[score for heads in of_models for score in heads] for of_models in zip(*by_model)]
        return [{SCORE: self._combine(scores), SPREAD: pstdev(scores)} for scores in each]

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        return WeightedSum(self.weights)(group)

    def _combine(self, scores: Sequence[float]) -> float:
        if self.combine == "min":
            return min(scores)
        return fmean(scores) - (self.deviations * pstdev(scores) if self.combine == "lower" else 0.0)
