"""ROVER: value the uniformly random policy, with the change of a language model's log-probs as the Q-function.

Random Policy Valuation is Enough for LLM Reasoning with Verifiable Rewards, 2025, arXiv:2509.24981.

- mean log-probability over the vocabulary: `MeanLogprob`
- centred reward of each token: `CentredReward`
- Bellman residual of the uniform policy: `uniform_bellman_residual`, squared `UniformBellmanLoss`
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.annotators.base import Annotator
from mmrl.core.batch import Batch
from mmrl.core.columns import Column, register_columns
from mmrl.core.errors import check_positive
from mmrl.core.types import Context, PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.ops.advantage import group_advantage
from mmrl.ops.choice import MASKED_LOGIT
from mmrl.ops.logprob import precision
from mmrl.ops.masked import zero_outside
from mmrl.ops.soft_returns import next_inside
from mmrl.policies.text.statistics import Statistic

register_columns(
    {
        "old_mean_logprobs": Column(
            "[N, T]", "nats", "ROVER: mean log-probability over the vocabulary at each choice, before the update"
        ),
    }
)


class MeanLogprob(Statistic):
    """Mean of log softmax(logits / temperature) over the ids that can be chosen, in nats, without gradient."""

    def __call__(self, logits: Tensor, temperature: Tensor) -> Tensor:
        x, possible = logits.detach().to(precision(logits)) / temperature[:, None, None], logits > MASKED_LOGIT
        return torch.where(possible, x, 0).sum(-1) / possible.sum(-1) - x.logsumexp(-1)


def uniform_bellman_residual(
    logprobs: Tensor,  # [N, T] nats, with gradient
    old: Tensor,  # [N, T] nats
    mean_logprob: Tensor,  # [N, T] nats, over the vocabulary
    old_mean_logprob: Tensor,  # [N, T] nats
    reward: Tensor,  # [N, T]
    mask: Tensor,  # [N, T] bool
    rho: float = 1.0,
) -> Tensor:  # [N, T], 0 outside the mask
    """Q_t - (r_t + V_{t+1}), the target without gradient, for Q = rho log(pi / pi_old) and V its mean over all tokens.

    V_{t+1} is that of the row's next choice inside the mask, and 0 after its last one: the value of choosing uniformly.
    Source: Random Policy Valuation is Enough for LLM Reasoning, 2025, arXiv:2509.24981.
    """
    # (rows, choices) Q of the choice, and V, the mean of Q over the vocabulary, without gradient
    q = rho * zero_outside(logprobs - old, mask)
    value = rho * zero_outside(mean_logprob - old_mean_logprob, mask).detach()
    following = next_inside(value, mask)
    return zero_outside(q - (reward + following), mask)


@dataclass(frozen=True)
class CentredReward(Annotator):
    """Write `token_rewards`: the reward of an episode minus the mean of its group, at each of its choices.

    Args:
        scale: divide by the group's population standard deviation, as the paper's code for mathematics does.
        epsilon: is added to it.
    """

    scale: bool = False
    epsilon: float = 1e-6

    def reads(self) -> frozenset[str]:
        return frozenset({"group", "episode", "episode_reward", "action_mask"})

    def writes(self) -> frozenset[str]:
        return frozenset({"token_rewards"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        entry, reward, group = batch.per_episode("episode_reward", "group")
        centred = group_advantage(reward.float(), group, "mean", "std" if self.scale else None, self.epsilon)
        return batch.with_columns(token_rewards=torch.where(batch["action_mask"], centred[entry][:, None], 0.0))


@dataclass(frozen=True)
class UniformBellmanLoss(Term):
    """ROVER loss of each choice: the squared Bellman residual of the uniformly random policy.

    loss = (Q_t - sg(r_t + V_{t+1}))^2, see `uniform_bellman_residual`; no clipping, reference or advantage. The policy
    samples from softmax(Q / rho), its own distribution. The policy has the statistic `MeanLogprob`, stored before the
    update by `StatisticColumns`. Source: Random Policy Valuation is Enough for LLM Reasoning, 2025, arXiv:2509.24981.

    Args:
        rho: reward per nat.
        part: name of the statistic.
        old: column of the log-probs before the update.
    """

    rho: float = 1.0
    part: str = "mean_logprob"
    old: str = "behavior_logprobs"

    def __post_init__(self) -> None:
        check_positive("uniform_bellman_loss", rho=self.rho)

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "token_rewards", "old_mean_logprobs", self.old})

    def needs(self) -> frozenset[str]:
        return frozenset({self.part})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        mask, reward = batch["action_mask"], batch["token_rewards"]
        means = out.extra[self.part], batch["old_mean_logprobs"]
        return uniform_bellman_residual(out.logprobs, batch[self.old], *means, reward, mask, self.rho).square()
