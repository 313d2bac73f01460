"""PerfRL: rank programs by their unit tests and their speed, and train the policy with RRHF's ranking loss.

Leveraging Reinforcement Learning and Large Language Models for Code Optimization (PerfRL), 2023, arXiv:2312.05657.
RRHF: Rank Responses to Align Language Models with Human Feedback without tears, 2023, arXiv:2304.05302.

- ranking loss of the mean log-probs, and imitation of the best: `rank_loss`, as a term `RRHFLoss`
- the reward is the score `speed` of the task code: 0 for a program that fails a test
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.ops.masked import masked_mean, masked_sum


def rank_loss(
    logprob: Tensor,  # [N] nats, the mean over a row's choices
    reward: Tensor,  # [N]
    group: Tensor,  # [N] ids
    counted: Tensor,  # [N] bool
) -> Tensor:  # [N] the loss of the row's group
    """Ranking loss: sum of max(0, p_i - p_j) over the pairs of a group with r_i < r_j, the same for all its rows.

    Source: RRHF, 2023, the ranking loss, arXiv:2304.05302.
    """
    # (rows, rows) bool, row i is worse than row j of its group
    worse = (reward[:, None] < reward[None, :]) & (group[:, None] == group[None, :])
    worse = worse & counted[:, None] & counted[None, :]
    # (rows,) hinge of the wrong order, summed over the better rows
    pairs = torch.where(worse, (logprob[:, None] - logprob[None, :]).clamp(min=0), 0).sum(1)
    # (rows,) sum over the group, at each of its rows
    _, place = group.unique(return_inverse=True)
    return pairs.new_zeros(int(place.max()) + 1 if len(place) else 0).index_add(0, place, pairs)[place]


@dataclass(frozen=True)
class RRHFLoss(Term):
    """RRHF loss of a group of completions, per row [N]: ranking loss plus the negative log-likelihood of the best one.

    L = sum over r_i < r_j of max(0, p_i - p_j) - imitation_coef log pi(best), with p the mean and log pi the sum of the
    log-probs of a row's choices, in nats; of several best rows the mean counts. All rows of a group carry its loss, so
    that weights that count rows alike (`SequenceMean`) count groups of one size alike. A row is a whole completion; who
    sampled it does not matter. Source: RRHF, 2023, the ranking and the fine-tuning loss, arXiv:2304.05302.

    Args:
        imitation_coef: weight of the negative log-likelihood; 1 in the paper.
    """

    imitation_coef: float = 1.0

    whole_groups = True

    def __post_init__(self) -> None:
        check_at_least(0, "rrhf_loss", imitation_coef=self.imitation_coef)

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "group", "episode_reward"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        mask = batch["action_mask"]
        counted, (_, place) = mask.any(1), batch["group"].unique(return_inverse=True)
        reward = batch["episode_reward"].to(out.logprobs.dtype)
        loss = rank_loss(masked_mean(out.full_logprobs, mask, dim=1), reward, batch["group"], counted)
        # (rows,) bool, the rows with the highest reward of their group; several at a tie
        best = counted & (reward == _highest(torch.where(counted, reward, -torch.inf), place))
        # (rows,) negative log-likelihood, the mean over the best rows of the group, at each of its rows
        total = torch.where(best, masked_sum(out.full_logprobs, mask, dim=1), 0)
        sums = total.new_zeros(len(batch["group"])).index_add(0, place, total)
        counts = total.new_zeros(len(batch["group"])).index_add(0, place, best.to(total.dtype))
        imitation = -(sums / counts.clamp(min=1))[place]
        return torch.where(counted, loss + self.imitation_coef * imitation, 0)

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """ranking: the ranking loss of the row's group, nats."""
        mask = batch["action_mask"]
        mean, reward = masked_mean(out.full_logprobs, mask, dim=1), batch["episode_reward"]
        return {"ranking": rank_loss(mean, reward, batch["group"], mask.any(1))}


def _highest(reward: Tensor, place: Tensor) -> Tensor:
    """[N] the highest reward of the row's group."""
    return reward.new_full((len(reward),), -torch.inf).scatter_reduce(0, place, reward, "amax")[place]
