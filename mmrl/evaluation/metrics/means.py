"""Means of scores and completion lengths over episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan, sqrt

from mmrl.core.types import Episode
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.metrics.finished_episodes import count_errors, drop_errors, get_score


@dataclass(frozen=True)
class MeanScores(Evaluator):
    """Mean of every named score over the finished episodes, and `errors`, the number of those left out.

    Args:
        partial: take the mean over the episodes that have the score, in place of refusing those that lack it.
    """

    partial: bool = False

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        valid = drop_errors(episodes)
        names = sorted({name for episode in valid for name in episode.scores})
        means = {}
        for name in names:
            scored = [episode for episode in valid if name in episode.scores] if self.partial else valid
            means[name] = sum(get_score(episode, name) for episode in scored) / len(scored)
        return {**means, "errors": count_errors(episodes)}


@dataclass(frozen=True)
class MeanReward(Evaluator):
    """Mean of the reward over the finished episodes, its standard error std / sqrt(n), `n` and `errors`.

    With several samples of one problem, which are not independent, the standard error is too small.
    """

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        rewards = [episode.reward for episode in drop_errors(episodes)]
        n = len(rewards)
        mean = sum(rewards) / n if n else nan
        variance = sum((reward - mean) ** 2 for reward in rewards) / (n - 1) if n > 1 else nan
        return {"mean": mean, "standard_error": sqrt(variance / n) if n else nan, "n": float(n),
                "errors": count_errors(episodes)}  # fmt: skip


@dataclass(frozen=True)
class CompletionLength(Evaluator):
    """Mean number of choices per finished episode, `mean`, and the fraction cut at the limit, `truncated_fraction`."""

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        valid = drop_errors(episodes)
        if not valid:
            return {"mean": nan, "truncated_fraction": nan, "errors": count_errors(episodes)}
        missing = [episode.prompt.key for episode in valid if "tokens" not in episode.info]
        if missing:
            raise KeyError(f"the episode of {missing[0]!r} has no info['tokens']; evaluators take Episode.light()")
        return {
            "mean": sum(episode.info["tokens"] for episode in valid) / len(valid),
            "truncated_fraction": sum(episode.ended == "length" for episode in valid) / len(valid),
            "errors": count_errors(episodes),
        }
