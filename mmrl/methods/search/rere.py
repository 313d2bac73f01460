"""ReRe: GRPO for generative recommenders, with ranking rewards of the items of a constrained beam search.

Reinforced Preference Optimization for Recommendation, 2025, arXiv:2510.12211.

- penalties of wrong items by their rank: `rank_penalties`; with the weighted sum of scores: `RankReward`
- groups of distinct valid items: rollout=beam_search; HR@K and NDCG@K: `RankedHits`
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mmrl.core.groups import get_score, group_episodes
from mmrl.core.types import Episode
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.metrics.finished_episodes import count_errors, drop_errors, get_binary_score
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.measures import ndcg


def rank_penalties(hits: Sequence[bool]) -> list[float]:
    """Penalty of each of G ranked outputs: -w_k / sum_j w_j with w_k = 1 / log2(k + 2), ranks k from 0; 0 for a hit.

    The sum runs over all G ranks. Without a hit all are 0: nothing says that an output is worse than another one.
    Source: ReRe, 2025, ranking reward, arXiv:2510.12211, and its released code, sober-clever/ReRe.
    """
    weights = [1 / math.log2(rank + 2) for rank in range(len(hits))]
    return [-weight / sum(weights) * (any(hits) and not hit) for weight, hit in zip(weights, hits)]


@dataclass(frozen=True)
class RankReward(WeightedSum):
    """Reward of an episode: sum_k weights_k * scores_k plus the penalty of its rank, unless it is a hit.

    With the weight 1 of `exact` it is ReRe's rule-based plus ranking reward. The rank of an episode is that of its
    sample index in the group, as rollout=beam_search numbers them. Source: ReRe, 2025, arXiv:2510.12211.

    Args:
        weights: by name of the score.
        score_name: name of a score that is 1 for a hit.
        penalty_weight: of the penalties; 0 leaves the weighted sum.
    """

    score_name: str = "exact"
    penalty_weight: float = 1.0

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        order = sorted(range(len(group)), key=lambda place: group[place].sample_index)
        penalties = rank_penalties([get_score(group[place], self.score_name) == 1 for place in order])
        of_place = dict(zip(order, penalties))
        return [sums + self.penalty_weight * of_place[i] for i, sums in enumerate(super().__call__(group))]


@dataclass(frozen=True)
class RankedHits(Evaluator):
    """Hit rate hr@K and ndcg@K of the ranked outputs of each prompt, means over prompts.

    hr@K: share of prompts with a hit in the first K outputs; ndcg@K: 1 / log2(k + 2) for the first hit at rank k < K,
    else 0. Ranks are sample indices. `prompts` is the number of prompts, `errors` that of episodes left out.

    Args:
        ks: numbers of outputs.
        score_name: name of a score of 0 or 1 that the task gives.
    """

    ks: Sequence[int] = (1, 3, 5, 10)
    score_name: str = "exact"

    def __post_init__(self) -> None:
        if not self.ks or min(self.ks) < 1:
            raise ValueError(f"ranked_hits.ks must be numbers of outputs, at least 1 each, got {self.ks}")

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        groups = group_episodes(drop_errors(episodes)).values()
        for group in groups:
            if len(group) < max(self.ks):
                raise ValueError(
                    f"hr@{max(self.ks)} needs {max(self.ks)} outputs of each prompt, {group[0].prompt.key!r} has "
                    f"{len(group)}; raise evaluation.num_samples or lower evaluator.ks"
                )
        ranks = [self._rank(group) for group in groups]
        out: dict[str, float] = {}
        for k in sorted(self.ks):
            out[f"hr@{k}"] = sum(rank < k for rank in ranks) / len(ranks)
            out[f"ndcg@{k}"] = sum(ndcg(range(k), {rank: 1.0}) for rank in ranks) / len(ranks)
        return {**out, "prompts": float(len(ranks)), "errors": count_errors(episodes)}

    def _rank(self, group: Sequence[Episode]) -> float:
        """Rank of the first hit; infinite without one."""
        ordered = sorted(group, key=lambda episode: episode.sample_index)
        hits = (rank for rank, episode in enumerate(ordered) if get_binary_score(episode, self.score_name))
        return next(hits, math.inf)
