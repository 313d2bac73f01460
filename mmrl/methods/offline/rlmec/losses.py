"""RLMEC: token rewards from the editor's probabilities, and the two losses of the policy.

- clip(p - 0.5, ...) by the outcome: `EditRewards`
- clipped token weights times log-probs: `EditSurrogate`; the regulariser, weighted imitation: `EditImitation`
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.annotators.base import Annotator
from mmrl.core.batch import Batch
from mmrl.core.types import Context, PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.ops.masked import zero_outside
from mmrl.ops.policy_gradient import clipped_surrogate, log_ratio


@dataclass(frozen=True)
class EditRewards(Annotator):
    """Write `token_rewards`: clip(p - 0.5, 0, max_reward) in right answers, clip(p - 0.5, -max_penalty, 0) in others.

    p = exp(reward_logprobs) is the editor's probability of the token. Source: RLMEC, 2024, arXiv:2401.06081.

    Args:
        max_reward: of a token of a right answer.
        max_penalty: of a token of a wrong answer.
        success_threshold: smallest reward of a right answer.
    """

    max_reward: float = 0.5
    max_penalty: float = 0.1
    success_threshold: float = 1.0

    def reads(self) -> frozenset[str]:
        return frozenset({"reward_logprobs", "episode_reward", "action_mask"})

    def writes(self) -> frozenset[str]:
        return frozenset({"token_rewards"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        mask = batch["action_mask"]
        above = zero_outside(batch["reward_logprobs"], mask).exp() - 0.5
        right = (batch["episode_reward"] >= self.success_threshold)[:, None]
        rewards = torch.where(right, above.clamp(0, self.max_reward), above.clamp(-self.max_penalty, 0))
        return batch.with_columns(token_rewards=zero_outside(rewards, mask))


@dataclass(frozen=True)
class EditSurrogate(Term):
    """Policy loss per row: -sum_t w_t logprob_t / #{t: r_t != 0}, with weights w_t from token rewards.

    w_t = min(q_t r_t, clip(q_t, 1 - clip, 1 + clip) r_t) has no gradient; r_t is `token_rewards` and q_t the ratio to
    the policy that sampled. The row's weight is taken.
    Source: RLMEC, 2024, arXiv:2401.06081.

    Args:
        clip: half the width of the clip range.
        old: column of the log-probs that the ratio is taken against; the paper's answers are those of the reference.
    """

    clip: float = 0.3
    old: str = "behavior_logprobs"

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "token_rewards", self.old})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        mask = batch["action_mask"]
        rewards = zero_outside(batch["token_rewards"], mask)
        ratio = log_ratio(out.logprobs.detach(), batch[self.old], mask).exp()
        weights = -clipped_surrogate(ratio, rewards, self.clip, self.clip)
        return -(weights * zero_outside(out.logprobs, mask)).sum(1) / (rewards != 0).sum(1).clamp(min=1)


@dataclass(frozen=True)
class EditImitation(Term):
    """Regulariser per row: sum_t v_t (-logprob_t) / #{t: v_t != 0}, v_t = `imitation_weights`.

    The row's weight is taken. Source: RLMEC, 2024, arXiv:2401.06081.
    """

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "imitation_weights"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        mask = batch["action_mask"]
        weights = zero_outside(batch["imitation_weights"], mask)
        return -(weights * zero_outside(out.full_logprobs, mask)).sum(1) / (weights != 0).sum(1).clamp(min=1)
