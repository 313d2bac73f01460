"""VeriRL: rewards of a frozen reward model, and sample-balanced weighting (SbW) by reward and probability.

- scores of the model in place of rewards: `ModelReward`
- the weights: `sample_balanced_weights`, in the advantages and for `WeightedKL`: `BalancedWeights`
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mmrl.annotators.base import Annotator
from mmrl.core.batch import Batch
from mmrl.core.types import Context, Episode, Request
from mmrl.ops.masked import masked_mean, zero_outside
from mmrl.rollouts.base import text_observation
from mmrl.transforms.base import EpisodeTransform


@dataclass(frozen=True)
class ModelReward(EpisodeTransform):
    """Replaces rewards by the scores of a frozen reward model, a `ScoringPolicy` in `model.frozen_models`.

    Args:
        model: its name.
    """

    model: str = "reward_model"

    def sampled_models(self) -> frozenset[str]:
        return frozenset({self.model})

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        raws = [{**text_observation(e.prompt), "answer": str(e.output)} for e in episodes]
        requests = [Request(raw, 0, model=self.model) for raw in raws]
        completions = ctx.engine.sample(requests, ctx.sampling) if requests else []
        return [replace(episode, reward=float(done.output)) for episode, done in zip(episodes, completions)]


def sample_balanced_weights(
    probabilities: Tensor,  # [N] of the samples
    rewards: Tensor,  # [N] > 0
    means: tuple[float, float],  # of both over the batch
) -> tuple[Tensor, Tensor]:  # [N], [N]
    """Weights alpha = max(P / mean P, R / mean R) of the policy loss and beta = min(...) of the KL penalty.

    Source: VeriRL, 2025, sample-balanced weighting, arXiv:2508.18462.
    """
    both = torch.stack([probabilities / means[0], rewards / means[1]])
    return both.amax(0), both.amin(0)


@dataclass(frozen=True)
class BalancedWeights(Annotator):
    """Multiplies advantages by alpha and writes beta as `kl_weights`, by `sample_balanced_weights` (SbW).

    P is the geometric mean of the probabilities with which a row's tokens were sampled, R the sigmoid of its episode's
    reward, which makes scores of a Bradley-Terry model positive. Means are those of the rows of all ranks. An advantage
    is a factor of the clipped surrogate, so that alpha weighs it. Source: VeriRL, 2025, arXiv:2508.18462.
    """

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "advantages", "behavior_logprobs", "episode_reward"})

    def writes(self) -> frozenset[str]:
        return frozenset({"advantages", "kl_weights"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        mask = batch["action_mask"]
        probabilities = masked_mean(zero_outside(batch["behavior_logprobs"], mask), mask, dim=1).exp()
        rewards, valid = batch["episode_reward"].float().sigmoid(), mask.any(1)
        # means over the rows of all processes; sorted, so that the sum does not depend on their number
        pairs = ctx.collector.gather(list(zip(probabilities[valid].tolist(), rewards[valid].tolist())))
        count = max(len(pairs), 1)
        means = sum(p for p, _ in sorted(pairs)) / count, sum(r for _, r in sorted(pairs)) / count
        alpha, beta = sample_balanced_weights(probabilities, rewards, means)
        advantages = zero_outside(batch["advantages"], mask) * alpha[:, None]
        return batch.with_columns(
            advantages=advantages, kl_weights=zero_outside(beta[:, None].expand(mask.shape), mask)
        )
