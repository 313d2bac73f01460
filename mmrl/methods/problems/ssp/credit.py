"""SSP: rewards and advantages of proposers and solvers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from mmrl.annotators.base import Annotator
from mmrl.core.batch import Batch
from mmrl.core.columns import Column, register_columns
from mmrl.core.errors import check_at_least
from mmrl.core.types import Context, Episode
from mmrl.ops.advantage import group_advantage
from mmrl.rewards.compose import WeightedSum

PROPOSER, SOLVER = "proposer", "solver"
"""Roles of episodes."""

register_columns({"proposes": Column("[N]", "bool", "SSP: whether the row wrote a question, and did not answer one")})


def proposer_reward(accuracy: float, kind: Literal["difficulty", "intermediate"] = "difficulty") -> float:
    """Reward of a question that the share a of its solvers answers: 1 - a, or 4 a (1 - a) ("intermediate")."""
    return 1 - accuracy if kind == "difficulty" else 4 * accuracy * (1 - accuracy)


@dataclass(frozen=True)
class ProposerReward(WeightedSum):
    """Reward of SSP: a solver's is sum_k weights_k * scores_k, a proposer's is `proposer_reward` of its solvers' mean.

    A proposer whose question is invalid earns 0, whatever the solvers of a reused question do. The task's scores of the
    proposer itself, whose last turn is a question, are not read.

    Args:
        weights: by name of the score; a right answer has to be worth 1 and a wrong one 0.
        kind: "difficulty" for 1 - a, "intermediate" for 4 a (1 - a).
    """

    kind: Literal["difficulty", "intermediate"] = "difficulty"

    def __post_init__(self) -> None:
        if self.kind not in ("difficulty", "intermediate"):
            raise ValueError(f"reward.kind must be difficulty or intermediate, got {self.kind!r}")

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        solvers = [episode for episode in group if episode.role != PROPOSER]
        solver_rewards = super().__call__(solvers)
        accuracy = sum(solver_rewards) / len(solvers) if solvers else 1.0
        earned, rewards = proposer_reward(accuracy, self.kind), iter(solver_rewards)
        return [
            next(rewards) if e.role != PROPOSER else earned if e.info["proposal"] == "valid" else 0.0 for e in group
        ]


@dataclass(frozen=True)
class ProposerAdvantage(Annotator):
    """Advantages of SSP: a proposer's is its reward, a solver's that of GRPO among the solvers of its question.

    Args:
        epsilon: is added to the population standard deviation of the solvers' rewards.
    """

    epsilon: float = 1e-4

    def __post_init__(self) -> None:
        check_at_least(0, "proposer_advantage", epsilon=self.epsilon)

    def reads(self) -> frozenset[str]:
        return frozenset({"group", "episode", "episode_reward", "action_mask", "proposes"})

    def writes(self) -> frozenset[str]:
        return frozenset({"advantages"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        entry, reward, group, proposes = batch.per_episode("episode_reward", "group", "proposes")
        solving = group_advantage(reward.float(), 2 * group + proposes.long(), "mean", "std", self.epsilon)
        advantage = torch.where(proposes.bool(), reward.float(), solving)  # [E]
        return batch.with_columns(advantages=torch.where(batch["action_mask"], advantage[entry][:, None], 0.0))
