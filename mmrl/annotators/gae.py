"""Generalised advantage estimation (GAE), over environment steps or over the choices within them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.annotators.base import Annotator
from mmrl.core.batch import Batch
from mmrl.core.errors import check_fraction
from mmrl.core.types import Context
from mmrl.ops.masked import masked_whiten, zero_outside
from mmrl.ops.returns import generalised_advantages


@dataclass(frozen=True)
class GAE(Annotator):
    """Generalised advantage estimation: advantages, and the returns that the value function is fitted to.

    Values per row [N]: a time step is a row, and its advantage is that of all its choices. Values per choice [N, T]:
    a time step is a choice of the policy, in the order (step, choice); forced choices are passed over, and a row's
    reward is given at the last choice made so far. `gamma` and `gae_lambda` are per time step.

    Args:
        gamma: discount factor per time step.
        gae_lambda: 0 for the one-step advantage of the values, 1 for the return minus the value.
        whiten: bring the advantages of all ranks' rows to mean 0 and variance 1, over choices.
        token_rewards: column of rewards per choice that are added, such as the KL penalty of PPO-RLHF; it needs values
            per choice.
    """

    gamma: float = 0.99
    gae_lambda: float = 0.95
    whiten: bool = False
    token_rewards: str | None = None

    def __post_init__(self) -> None:
        check_fraction("gae", gamma=self.gamma, gae_lambda=self.gae_lambda)

    def reads(self) -> frozenset[str]:
        read = {"episode", "step", "reward", "values", "bootstrap_value", "action_mask", "is_last"}
        return frozenset(read if self.token_rewards is None else {*read, self.token_rewards})

    def writes(self) -> frozenset[str]:
        return frozenset({"advantages", "returns"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        values, mask = batch["values"].float(), batch["action_mask"]
        # time steps [N, T] bool: with values [N] one per row, with values [N, T] the sampled choices
        per_row = values.dim() == 1
        timeline = Timeline(batch, torch.ones(len(values), 1, dtype=torch.bool) if per_row else mask)
        grid = values[:, None] if per_row else values
        # [E, H] rewards of E episodes over time, each row's at its last time step so far
        rewards = timeline.rewards(batch["reward"].float())
        if self.token_rewards is not None:
            if per_row:
                raise ValueError(
                    f"gae.token_rewards={self.token_rewards} are per choice, and the policy's values are per row; "
                    "set token_rewards=null"
                )
            rewards = rewards + timeline.pack(batch[self.token_rewards].float())
        # GAE over time [E, H], with the bootstrap value [E] after the last step; back to rows [N, T] or [N, 1]
        advantages = timeline.unpack(
            generalised_advantages(
                rewards,
                timeline.pack(grid),
                timeline.mask,
                timeline.at_end(batch["is_last"], batch["bootstrap_value"].float(), mask),
                self.gamma,
                self.gae_lambda,
            )
        )
        # regression target of the value function; an advantage per row is that of all its choices [N, T]
        returns = advantages + zero_outside(grid, timeline.choices)
        expanded = zero_outside(advantages.expand(mask.shape), mask)
        if self.whiten:
            expanded = whiten(expanded, mask, ctx)
        return batch.with_columns(advantages=expanded, returns=returns[:, 0] if per_row else returns)


class Timeline:
    """Rows in any order [N, T] as episodes in time [E, H], without what the policy did not choose."""

    def __init__(self, batch: Batch, choices: Tensor):
        ids, episode = batch["episode"].unique(return_inverse=True)
        order = batch["step"].argsort(stable=True)
        self.order = order[episode[order].argsort(stable=True)]  # by episode, then by step
        self.episode, self.ids, self.choices = episode, ids, choices
        self.row_episode = episode[self.order]
        # [N] time steps of each ordered row
        counts = choices[self.order].sum(1)
        self.ends = counts.cumsum(0)  # choices made up to and including each ordered row
        # [E] time steps of each episode, and where they start among those of all episodes
        lengths = counts.new_zeros(len(ids)).index_add(0, self.row_episode, counts)
        self.starts = lengths.cumsum(0) - lengths
        # [H] time, and [E, H] bool mask of the grid; H is the length of the longest episode
        self.column = torch.arange(int(lengths.max()) if len(ids) else 0)
        self.mask = self.column < lengths[:, None]

    def pack(self, value: Tensor) -> Tensor:
        """[N, T] to [E, H]."""
        out = value.new_zeros(self.mask.shape)
        out[self.mask] = value[self.order][self.choices[self.order]]
        return out

    def unpack(self, value: Tensor) -> Tensor:
        """[E, H] to [N, T], 0 where nothing was chosen."""
        ordered = value.new_zeros(self.choices.shape)
        ordered[self.choices[self.order]] = value[self.mask]
        out = torch.empty_like(ordered)
        out[self.order] = ordered
        return out

    def rewards(self, reward: Tensor) -> Tensor:
        """[N] to [E, H]: each row's reward at the last choice made so far, dropped before the first."""
        at = self.ends - 1 - self.starts[self.row_episode]
        earned = at >= 0
        out = reward.new_zeros(self.mask.shape)
        where = (self.row_episode[earned], at[earned])
        return out.index_put(where, reward[self.order][earned], accumulate=True)

    def at_end(self, last: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """[N] to [E]: the entry of each episode's last row; 0 where nothing was chosen and nothing is learned."""
        counts = torch.zeros(2, len(self.ids), dtype=torch.long)
        ends, choices = counts.index_add(1, self.episode, torch.stack([last, mask.any(1)]).long())
        wrong = (ends != 1) & (choices > 0)
        if wrong.any():
            raise ValueError(
                f"annotator gae: episodes {self.ids[wrong].tolist()} do not have exactly one row with is_last=True; "
                "keep all rows of an episode in one batch"
            )
        out = value.new_zeros(len(self.ids))
        out[self.episode[last]] = value[last]
        return out


def whiten(value: Tensor, mask: Tensor, ctx: Context, epsilon: float = 1e-8) -> Tensor:
    """Values [N, T] with mean 0 and population variance 1 inside the mask, over all ranks; 0 outside. Collective."""
    if ctx.world_size == 1:
        return masked_whiten(value, mask, epsilon)
    inside = value[mask].double()
    count, total = map(sum, zip(*ctx.collector.gather([(len(inside), float(inside.sum()))])))
    mean = total / max(count, 1)
    squares = sum(ctx.collector.gather([float((inside - mean).square().sum())]))
    std = (squares / max(count, 1)) ** 0.5
    return zero_outside(((value - mean) / (std + epsilon)).to(value.dtype), mask)
