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
from mmrl.rewards.base import Reward

PROPOSER, SOLVER = "proposer", "solver"
"""Roles of episodes."""

register_columns({"proposes": Column("[N]", "bool", "SSP: whether the row wrote a question, and did not answer one")})


def proposer_reward(accuracy: float, kind: Literal["difficulty", "intermediate"] = "difficulty") -> float:
    """Reward of a question that the share a of its solvers answers: 1 - a, or 4 a (1 - a) ("intermediate")."""
    return 1 - accuracy if kind == "difficulty" else 4 * accuracy * (1 - accuracy)


@dataclass(frozen=True)
class ProposerReward(Reward):
    """Reward of SSP: a solver's is the score of its answer; a proposer's is `proposer_reward` of its solvers' mean.

    A proposer whose question is invalid earns 0, whatever the solvers of a reused question do. The task's score of the
    proposer itself, whose last turn is a question, is not read.

    Args:
        kind: "difficulty" for 1 - a, "intermediate" for 4 a (1 - a).
        score: of the task, 1 for a right answer.
    """

    kind: Literal["difficulty", "intermediate"] = "difficulty"
    score: str = "exact"

    def __post_init__(self) -> None:
        if self.kind not in ("difficulty", "intermediate"):
            raise ValueError(f"reward.kind must be difficulty or intermediate, got {self.kind!r}")

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        answers = [episode.scores[self.score] for episode in group if episode.role != PROPOSER]
        accuracy = sum(answers) / len(answers) if answers else 1.0
        rewards = []
        for episode in group:
            if episode.role != PROPOSER:
                rewards.append(episode.scores[self.score])
            else:
                valid = episode.info["proposal"] == "valid"
                rewards.append(proposer_reward(accuracy, self.kind) if valid else 0.0)
        return rewards


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
