"""Vision-Zero: rewards and advantages of clues and votes."""

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

Outcome = Literal["right", "none", "wrong"]
VOTE_REWARDS: dict[Outcome, float] = {"right": 1.0, "none": -0.5, "wrong": -1.0}

register_columns(
    {
        "voter": Column("[N]", "id", "Vision-Zero: the citizen that votes in the row, from 0; -1 in rows of clues"),
        "role_baseline": Column("[N]", "reward", "Vision-Zero: running mean of the rewards of the clues of a role"),
    }
)


def clue_rewards(votes: Sequence[float], spy: int, beta: float = 0.1, spread: float = 0.1) -> list[float]:
    """Zero-sum rewards of the players for the votes that each received.

    Spy: -beta (v_s - m), with m the mean over the n citizens; citizen j: beta / n (v_s - m) - spread (v_j - m).
    Source: Vision-Zero, 2025, clue stage, arXiv:2509.25541.
    """
    citizens = [v for player, v in enumerate(votes) if player != spy]
    mean = sum(citizens) / len(citizens)
    gap = votes[spy] - mean
    return [
        -beta * gap if player == spy else beta / len(citizens) * gap - spread * (v - mean)
        for player, v in enumerate(votes)
    ]


def vote_reward(vote: int | None, spy: int) -> tuple[Outcome, float]:
    """Outcome and reward of a vote, a player's number from 0: +1 right, -0.5 for none, -1 wrong or no player."""
    outcome: Outcome = "none" if vote is None else "right" if vote == spy else "wrong"
    return outcome, VOTE_REWARDS[outcome]


@dataclass(frozen=True)
class GameReward(WeightedSum):
    """Reward of an episode of `SpyGame`: sum_k weights_k * scores_k, of which `earned` is what the game has decided.

    A vote has the score `vote` too: 1 if it is right, else 0.

    Args:
        weights: by name of the score.
    """

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        votes = [{"vote": float(e.info["outcome"] == "right")} if "outcome" in e.info else {} for e in episodes]
        return [{"earned": float(e.info["earned"]), **vote} for e, vote in zip(episodes, votes)]


@dataclass(frozen=True)
class GameAdvantage(Annotator):
    """Advantages of Vision-Zero: of a clue its reward less the baseline of its role, of a vote as in GRPO.

    Votes are compared with the other votes of the citizen in this game: (r - mean) / (std + epsilon), with the
    population standard deviation.

    Args:
        epsilon: added to the standard deviation.
    """

    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        check_at_least(0, "game_advantage", epsilon=self.epsilon)

    def reads(self) -> frozenset[str]:
        return frozenset({"group", "episode", "episode_reward", "action_mask", "voter", "role_baseline"})

    def writes(self) -> frozenset[str]:
        return frozenset({"advantages"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        entry, reward, group, voter, baseline = batch.per_episode("episode_reward", "group", "voter", "role_baseline")
        _, compared = torch.stack([group, voter], 1).unique(dim=0, return_inverse=True)  # [E]
        of_votes = group_advantage(reward.float(), compared, "mean", "std", self.epsilon)
        advantage = torch.where(voter < 0, reward.float() - baseline.float(), of_votes)  # [E]
        return batch.with_columns(advantages=torch.where(batch["action_mask"], advantage[entry][:, None], 0.0))
