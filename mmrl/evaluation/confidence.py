"""What a policy thinks of its own held-out answers, and how far that can be trusted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import nan

import numpy as np
from sklearn.metrics import roc_auc_score

from mmrl.episodes.base import EpisodeTransform
from mmrl.episodes.filter import grouped
from mmrl.episodes.probe import SelfRewardToken
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.finished import binary_score, failures, finished
from mmrl.learners.collate import collate
from mmrl.ops.probe import self_reward
from mmrl.stages.logprobs import scored
from mmrl.types import Context, Episode


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
        said = [episode for episode in SelfRewardToken(self.token)(episodes, ctx) if episode.turns]
        if not said:
            return episodes
        batch = collate(said, ctx.policy)

        def ask(model):
            return scored(model, batch, lambda out: out.logprobs, self.rows, ctx.device)

        if self.reference is None and "reference" not in ctx.models:
            raise KeyError("evaluator confidence needs a reference: set model.reference=true, or its log-probability")
        reference = ask(ctx.models["reference"]) if self.reference is None else self.reference
        score = self_reward(ask(ctx.policy), reference, batch["self_reward_mask"], self.scale)
        of = np.zeros(len(said))
        np.add.at(of, batch["episode"].numpy(), score.numpy())
        known = iter(of.tolist())
        return [
            replace(e, info={**e.info, "confidence": next(known), "answer": e.output}) if e.turns else e
            for e in episodes
        ]


@dataclass(frozen=True)
class Discrimination(Evaluator):
    """Area under the ROC curve: how often a right answer is trusted more than a wrong one, ties counting half.

    mean; n, the number of answers; right, those of them that are. Not a number where all are right or all are wrong.

    Args:
        score: a score of 0 or 1.
        by: number in the episodes' `info` that should tell.
    """

    score: str = "exact"
    by: str = "confidence"

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        valid = finished(episodes)
        right = np.array([binary_score(episode, self.score) for episode in valid])
        trusted = [told(episode, self.by) for episode in valid]
        area = float(roc_auc_score(right, trusted)) if 0 < right.sum() < len(right) else nan
        return {"mean": area, "n": float(len(valid)), "right": float(right.sum()), "errors": failures(episodes)}


@dataclass(frozen=True)
class WeightedVote(Evaluator):
    """Share of prompts at which the answer with the largest sum of weights is right: mean, n; and `majority` of all.

    Answers are alike when their texts are, without the space around them. Of several that lead, the first counts.

    Args:
        score: a score of 0 or 1.
        by: number in the episodes' `info` that weighs an answer; those below 0 weigh nothing.
    """

    score: str = "exact"
    by: str = "confidence"

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        groups = grouped(finished(episodes)).values()
        weighted = [self._led(group, [max(told(e, self.by), 0.0) for e in group]) for group in groups]
        majority = [self._led(group, [1.0] * len(group)) for group in groups]
        n = len(weighted)
        return {
            "mean": sum(weighted) / n if n else nan,
            "majority": sum(majority) / n if n else nan,
            "n": float(n),
            "errors": failures(episodes),
        }

    def _led(self, group: Sequence[Episode], weights: Sequence[float]) -> float:
        sums: dict[str, float] = defaultdict(float)
        for episode, weight in zip(group, weights):
            sums[str(told(episode, "answer")).strip()] += weight
        best = max(sums, key=sums.__getitem__)
        return next(binary_score(e, self.score) for e in group if str(e.info["answer"]).strip() == best)


def told(episode: Episode, name: str):
    """An entry of the episode's `info`."""
    if name not in episode.info:
        raise KeyError(
            f"the episode of {episode.prompt.key!r} has no info[{name!r}]; name what writes it, such as Confidence, "
            "under data.evaluation.transforms"
        )
    return episode.info[name]
