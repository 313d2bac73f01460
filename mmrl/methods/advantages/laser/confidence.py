"""LaSeR: self-rewards as confidence in held-out answers, its ROC AUC, and votes weighted by it.

LaSeR: Reinforcement Learning with Last-Token Self-Rewarding, 2025, arXiv:2510.14943.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import nan

import numpy as np
from sklearn.metrics import roc_auc_score

from mmrl.annotators.logprobs import score_rows
from mmrl.core.groups import group_episodes
from mmrl.core.types import Context, Episode
from mmrl.data.collate import collate
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.metrics.finished_episodes import count_errors, drop_errors, get_binary_score
from mmrl.methods.advantages.laser.self_reward import SelfRewardToken, self_reward
from mmrl.transforms.base import EpisodeTransform


@dataclass(frozen=True)
class Confidence(EpisodeTransform):
    """Writes the self-reward of each answer into its `info` as confidence, 0 for a truncated one, and the answer.

    Args:
        token: the self-reward token.
        scale: rewards per nat.
        reference: log-probability of the token in the reference, in nats; none asks the learner's reference model.
        rows: answers per forward pass.
    """

    token: str
    scale: float = 0.1
    reference: float | None = None
    rows: int = 64

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        probed = [episode for episode in SelfRewardToken(self.token)(episodes, ctx) if episode.turns]
        if not probed:
            return episodes
        batch = collate(probed, ctx.policy)

        def ask(model):
            return score_rows(model, batch, lambda out: out.logprobs, self.rows, ctx.device)

        if self.reference is None and "reference" not in ctx.models:
            raise KeyError("evaluator confidence needs a reference: set model.reference=true, or its log-probability")
        reference = ask(ctx.models["reference"]) if self.reference is None else self.reference
        score = self_reward(ask(ctx.policy), reference, batch["self_reward_mask"], self.scale)
        totals = np.zeros(len(probed))
        np.add.at(totals, batch["episode"].numpy(), score.numpy())
        scores = iter(totals.tolist())
        return [
            replace(e, info={**e.info, "confidence": next(scores), "answer": e.output}) if e.turns else e
            for e in episodes
        ]


@dataclass(frozen=True)
class Discrimination(Evaluator):
    """Area under the ROC curve of confidence against correctness; ties count half.

    mean; n, the number of answers; right, those of them that are. Not a number where all are right or all are wrong.

    Args:
        score_name: name of a score of 0 or 1.
        info_key: entry of the episodes' `info` with the confidence.
    """

    score_name: str = "exact"
    info_key: str = "confidence"

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        valid = drop_errors(episodes)
        right = np.array([get_binary_score(episode, self.score_name) for episode in valid])
        trusted = [read_info(episode, self.info_key) for episode in valid]
        area = float(roc_auc_score(right, trusted)) if 0 < right.sum() < len(right) else nan
        return {"mean": area, "n": float(len(valid)), "right": float(right.sum()), "errors": count_errors(episodes)}


@dataclass(frozen=True)
class WeightedVote(Evaluator):
    """Share of prompts at which the answer with the largest sum of weights is right: mean, n; and `majority` of all.

    Answers are alike when their texts are, without the space around them. Of several that lead, the first counts.

    Args:
        score_name: name of a score of 0 or 1.
        info_key: entry of the episodes' `info` with the weight of an answer; weights below 0 count as 0.
    """

    score_name: str = "exact"
    info_key: str = "confidence"

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        groups = group_episodes(drop_errors(episodes)).values()
        weighted = [
            self._score_of_largest(group, [max(read_info(e, self.info_key), 0.0) for e in group]) for group in groups
        ]
        majority = [self._score_of_largest(group, [1.0] * len(group)) for group in groups]
        n = len(weighted)
        return {
            "mean": sum(weighted) / n if n else nan,
            "majority": sum(majority) / n if n else nan,
            "n": float(n),
            "errors": count_errors(episodes),
        }

    def _score_of_largest(self, group: Sequence[Episode], weights: Sequence[float]) -> float:
        sums: dict[str, float] = defaultdict(float)
        for episode, weight in zip(group, weights):
            sums[str(read_info(episode, "answer")).strip()] += weight
        best = max(sums, key=sums.__getitem__)
        return next(get_binary_score(e, self.score_name) for e in group if str(e.info["answer"]).strip() == best)


def read_info(episode: Episode, name: str):
    """Read an entry of the episode's `info`."""
    if name not in episode.info:
        raise KeyError(
            f"the episode of {episode.prompt.key!r} has no info[{name!r}]; name what writes it, such as Confidence, "
            "under data.evaluation.transforms"
        )
    return episode.info[name]
