"""Adversarial Surprise: what Control earns in its turn is what Explore loses, which acted in the turn before.

Explore and Control with Adversarial Surprise, 2021, arXiv:2107.07394.

The turns and Control's rewards are those of `sims.rooms.players.SurprisePlayers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from mmrl.annotators.base import Annotator
from mmrl.core.batch import Batch
from mmrl.core.types import Context


@dataclass(frozen=True)
class AdversarialReward(Annotator):
    """Pay the first player for the second one's loss, and make an episode of each player's steps.

    The last step of a turn of player 0 gets minus the sum of the rewards of player 1 in the turn that follows it. The
    steps of a player become an episode of its own, in which the first step of a turn follows the last one of its turn
    before, so that a value function of a player looks ahead over its own steps. Episodes end after their last turn.

    Args:
        player: column [N, D] whose last number is the player of a row.
    """

    player: str = "obs.state"

    def reads(self) -> frozenset[str]:
        return frozenset({self.player, "episode", "step", "reward", "is_last"})

    def writes(self) -> frozenset[str]:
        return frozenset({"episode", "reward", "is_last", "bootstrap_value"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        player = batch[self.player][:, -1].long()
        order = batch["step"].argsort(stable=True)
        order = order[batch["episode"][order].argsort(stable=True)]  # by episode, then by step
        reward, last = batch["reward"].float().clone(), torch.zeros_like(batch["is_last"])
        episode = 2 * batch["episode"] + player
        for rows in split_where(order, batch["episode"][order]):
            turns = split_where(rows, player[rows])
            for before, turn in pairwise(turns):
                if player[before[0]] == 0:
                    reward[before[-1]] = -reward[turn].sum()
            for number in player[rows].unique().tolist():
                last[rows[player[rows] == number][-1]] = True
        bootstrap = torch.zeros(len(reward))
        return batch.with_columns(episode=episode, reward=reward, is_last=last, bootstrap_value=bootstrap)

    def metrics(self, batch: Batch, ctx: Context) -> dict[str, float]:
        parts = ctx.collector.gather([(batch["episode"] % 2, batch["reward"].float())])
        player, reward = (torch.cat(column) for column in zip(*parts))
        # mean reward of a step of each player
        numbers = {"explore": 0, "control": 1}
        return {name: float(reward[player == k].mean()) for name, k in numbers.items() if (player == k).any()}


def split_where(rows: Tensor, values: Tensor) -> list[Tensor]:
    """Split rows [N] where the values [N] of neighbours differ."""
    _, counts = values.unique_consecutive(return_counts=True)
    return list(rows.split(counts.tolist()))
