"""Averages over episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan

from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.finished import failures, finished, score_of
from mmrl.types import Episode


@dataclass(frozen=True)
class MeanScores(Evaluator):
    """Mean of every named score over the finished episodes, and `errors`, the number of those left out."""

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        valid = finished(episodes)
        names = sorted({name for episode in valid for name in episode.scores})
        means = {name: sum(score_of(episode, name) for episode in valid) / len(valid) for name in names}
        return {**means, "errors": failures(episodes)}


@dataclass(frozen=True)
class Tokens(Evaluator):
    """Mean number of choices per finished episode, `mean`, and the share cut at the token limit, `cut_at_length`."""

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        valid = finished(episodes)
        if not valid:
            return {"mean": nan, "cut_at_length": nan, "errors": failures(episodes)}
        missing = [episode.prompt.key for episode in valid if "tokens" not in episode.info]
        if missing:
            raise KeyError(f"the episode of {missing[0]!r} has no info['tokens']; evaluators take Episode.light()")
        return {
            "mean": sum(episode.info["tokens"] for episode in valid) / len(valid),
            "cut_at_length": sum(episode.ended == "length" for episode in valid) / len(valid),
            "errors": failures(episodes),
        }
