"""Majority vote over the samples of a problem, plain and among those that a filter accepts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import nan

from mmrl.core.groups import group_episodes
from mmrl.core.types import Episode
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.metrics.finished_episodes import count_errors, drop_errors, get_binary_score, get_score
from mmrl.evaluation.metrics.support import get_answer


@dataclass(frozen=True)
class FilteredVote(Evaluator):
    """Share of problems whose most frequent answer among the accepted samples is right: `mean`; `majority` of all.

    Where no sample is accepted, all of them vote. Of several answers that lead, the first counts. `accepted` is the
    share of the samples that the filter accepts, `precision` the share of right ones among these, `recall` the share of
    accepted ones among the right ones, `n` the number of problems, `errors` that of samples left out. An answer is what
    the task's extractor found, else the whole completion.

    Source: Is PRM Necessary?, 2025, Self-PRM, arXiv:2505.11227: the model accepts its own solutions.

    Args:
        filter_score: name of the score that decides, such as format, or one that a reward or a judge adds.
        at_least: its smallest value of an accepted sample.
        score_name: name of a score of 0 or 1, which says what is right.
    """

    filter_score: str = "format"
    at_least: float = 1.0
    score_name: str = "exact"

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        groups = list(group_episodes(drop_errors(episodes)).values())
        accepted = [[e for e in group if self._accepts(e)] for group in groups]
        votes = [self._vote(part or group) for part, group in zip(accepted, groups)]
        majority = [self._vote(group) for group in groups]
        size, chosen = sum(map(len, groups)), sum(map(len, accepted))
        right, both = (
            sum(get_binary_score(e, self.score_name) for g in side for e in g) for side in (groups, accepted)
        )
        return {
            "mean": _share(sum(votes), len(votes)),
            "majority": _share(sum(majority), len(majority)),
            "accepted": _share(chosen, size),
            "precision": _share(both, chosen),
            "recall": _share(both, right),
            "n": float(len(groups)),
            "errors": count_errors(episodes),
        }

    def _accepts(self, episode: Episode) -> bool:
        return get_score(episode, self.filter_score) >= self.at_least

    def _vote(self, group: Sequence[Episode]) -> float:
        """Score of the first sample with the most frequent answer."""
        answers = [_read_answer(episode) for episode in group]
        best = Counter(answers).most_common(1)[0][0]  # equal counts stand in the order of their first sample
        return get_binary_score(group[answers.index(best)], self.score_name)


def _read_answer(episode: Episode) -> str:
    answer = episode.info.get("extracted")
    answer = get_answer(episode) if answer is None else str(answer).strip()
    if answer is None:
        raise KeyError(f"the episode of {episode.prompt.key!r} has no answer in words to vote for")
    return answer


def _share(part: float, whole: float) -> float:
    return part / whole if whole else nan
