"""Advantages over the greedy completion of the prompt."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from mmrl.annotators.base import Annotator
from mmrl.core.batch import Batch
from mmrl.core.types import Context


@dataclass(frozen=True)
class GreedyBaselineAdvantage(Annotator):
    """Reward of an episode minus that of the greedy completion of its prompt, equal for all its choices.

    A = r(y) - r(y_greedy): no value network, and one sampled completion per prompt is enough. 0 where the sampled
    completion is the greedy one. Source: ReMax, 2023, arXiv:2310.10505.
    """

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "episode_reward", "greedy_reward"})

    def writes(self) -> frozenset[str]:
        return frozenset({"advantages"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        advantage = (batch["episode_reward"] - batch["greedy_reward"]).float()
        return batch.with_columns(advantages=torch.where(batch["action_mask"], advantage[:, None], 0.0))
