"""Generalised advantage estimates over options: a row is discounted by how long its skill was played.

Between MDPs and semi-MDPs, 1999, Artificial Intelligence 112, section 3; GAE: arXiv:1506.02438, equation 16.

- the arithmetic: `option_advantages`
- the annotator: `OptionGAE`
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.annotators.base import Annotator
from mmrl.annotators.gae import Timeline, whiten
from mmrl.core.batch import Batch
from mmrl.core.errors import check_fraction
from mmrl.core.types import Context
from mmrl.ops.masked import zero_outside


def option_advantages(
    reward: Tensor,  # [E, H], summed over the option
    values: Tensor,  # [E, H]
    durations: Tensor,  # [E, H] control steps
    mask: Tensor,  # [E, H] bool, true up to the end of each episode
    bootstrap: Tensor,  # [E]
    gamma: float,  # per control step
    gae_lambda: float,  # per option
) -> Tensor:  # [E, H]
    """A_t = delta_t + gamma^d_t gae_lambda A_{t+1} with delta_t = R_t + gamma^d_t V_{t+1} - V_t; 0 outside the mask."""
    discount = gamma**durations
    following, advantage = bootstrap, torch.zeros_like(bootstrap)
    advantages = torch.zeros_like(values)
    for t in reversed(range(values.shape[1])):
        delta = reward[:, t] + discount[:, t] * following - values[:, t]
        advantage = torch.where(mask[:, t], delta + discount[:, t] * gae_lambda * advantage, advantage)
        following = torch.where(mask[:, t], values[:, t], following)
        advantages[:, t] = zero_outside(advantage, mask[:, t])
    return advantages


@dataclass(frozen=True)
class OptionGAE(Annotator):
    """GAE of rows that are options: the discount factor of a row is gamma to the power of its duration.

    The reward of a row is the sum over its option, as the simulator gives it.

    Args:
        gamma: discount factor per control step.
        gae_lambda: per option; 0 for the one-step advantage of the values, 1 for the return minus the value.
        whiten: bring the advantages of all ranks' rows to mean 0 and variance 1, over choices.
    """

    gamma: float = 0.99
    gae_lambda: float = 0.95
    whiten: bool = False

    def __post_init__(self) -> None:
        check_fraction("gae", gamma=self.gamma, gae_lambda=self.gae_lambda)

    def reads(self) -> frozenset[str]:
        return frozenset(
            {"episode", "step", "reward", "values", "bootstrap_value", "action_mask", "is_last", "durations"}
        )

    def writes(self) -> frozenset[str]:
        return frozenset({"advantages", "returns"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        values, mask = batch["values"].float(), batch["action_mask"]
        if values.dim() != 1:
            raise ValueError("gae: options need one value per row, and the policy's values are per choice")
        # time is rows: [E, H] of E episodes
        timeline = Timeline(batch, torch.ones(len(values), 1, dtype=torch.bool))
        advantages = timeline.unpack(
            option_advantages(
                timeline.rewards(batch["reward"].float()),
                timeline.pack(values[:, None]),
                timeline.pack(batch["durations"].float()[:, None]),
                timeline.mask,
                timeline.at_end(batch["is_last"], batch["bootstrap_value"].float(), mask),
                self.gamma,
                self.gae_lambda,
            )
        )
        returns = (advantages + values[:, None])[:, 0]
        expanded = zero_outside(advantages.expand(mask.shape), mask)
        if self.whiten:
            expanded = whiten(expanded, mask, ctx)
        return batch.with_columns(advantages=expanded, returns=returns)
