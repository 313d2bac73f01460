"""KL penalty in the reward: subtract beta times the divergence from the reference (PPO-RLHF, RLOO)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from mmrl.annotators.base import Annotator
from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least
from mmrl.core.types import Context
from mmrl.ops.policy_gradient import Estimator, divergence


@dataclass(frozen=True)
class KLPenalty(Annotator):
    """Subtract beta * KL(policy || reference) from the reward, per token or per sequence; it has no gradient.

    The estimate at each choice is that of the log-probs with which it was sampled. "token" writes -beta kl_t to
    `token_rewards`, which `GAE(token_rewards="token_rewards")` adds (PPO-RLHF). "sequence" subtracts the sum over a row
    from its `reward` and the sum over an episode from its `episode_reward`, for advantages of whole completions (GRPO,
    RLOO). Demonstrations are not penalised. Source: Training language models to follow instructions with human
    feedback, 2022, equation 2, arXiv:2203.02155.

    Args:
        beta: reward per nat.
        level: "token" or "sequence".
        estimator: of the KL divergence, as in the term `KL`.
    """

    beta: float = 0.05
    level: Literal["token", "sequence"] = "sequence"
    estimator: Estimator = "k1"

    def __post_init__(self) -> None:
        check_at_least(0, "kl_penalty", beta=self.beta)
        if self.level not in ("token", "sequence"):
            raise ValueError(f'kl_penalty.level must be "token" or "sequence", got {self.level!r}')

    def reads(self) -> frozenset[str]:
        rewards = {"reward", "episode_reward", "episode"} if self.level == "sequence" else set()
        return frozenset({"action_mask", "is_demo", "behavior_logprobs", "ref_logprobs", *rewards})

    def writes(self) -> frozenset[str]:
        return frozenset({"token_rewards"} if self.level == "token" else {"reward", "episode_reward"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        kl = divergence(batch["behavior_logprobs"], batch["ref_logprobs"], self.estimator)
        penalty = torch.where(batch["action_mask"] & ~batch["is_demo"][:, None], self.beta * kl, 0)
        if self.level == "token":
            return batch.with_columns(token_rewards=-penalty)
        per_row = penalty.sum(1)
        ids, episode = batch["episode"].unique(return_inverse=True)
        per_episode = per_row.new_zeros(len(ids)).index_add(0, episode, per_row)[episode]
        return batch.with_columns(
            reward=batch["reward"] - per_row, episode_reward=batch["episode_reward"] - per_episode
        )
