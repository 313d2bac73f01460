"""Monte Carlo returns of several reward streams, each with a discount factor of its own, and their advantages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from mmrl.annotators.base import Annotator
from mmrl.annotators.gae import Timeline, whiten
from mmrl.core.batch import Batch
from mmrl.core.types import Context
from mmrl.ops.advantage import group_mean
from mmrl.ops.masked import zero_outside
from mmrl.ops.returns import discounted_returns


@dataclass(frozen=True)
class RewardStreams(Annotator):
    """Advantage of each choice: its discounted returns of all reward streams, summed, minus a baseline.

    A_t = sum_s R_{s,t} - b_t with R_{s,t} = r_{s,t} + gamma_s R_{s,t+1}, over the policy's choices of an episode, in
    the order (step, choice); forced choices are passed over. The stream `reward` is the rows' reward, each at the last
    choice made so far; any other is a column of rewards per choice. Where an episode was cut off, its bootstrap value
    follows in the stream `reward`.

    Several discounts let a penalty reach back less far than the outcome, as in Demystifying Long Chain-of-Thought
    Reasoning in LLMs, 2025, section 4.2, arXiv:2502.03373, where the baseline is the values: GAE at lambda 1.

    Args:
        gammas: discount factor per choice of each stream, by the name of its column.
        baseline: "values", a column of values per choice, which also get `returns` to fit; "group", the mean of the
            returns at the first choices of the group's episodes; none for the plain returns.
        whiten: bring the advantages of all ranks' rows to mean 0 and variance 1, over choices.
    """

    gammas: Mapping[str, float] = field(default_factory=lambda: {"reward": 1.0, "token_rewards": 1.0})
    baseline: Literal["values", "group"] | None = "group"
    whiten: bool = False

    def __post_init__(self) -> None:
        if not self.gammas or not all(0 <= gamma <= 1 for gamma in self.gammas.values()):
            raise ValueError(
                f"reward_streams.gammas must name the discount factor in [0, 1] of at least one column, "
                f"got {dict(self.gammas)}"
            )
        if self.baseline not in ("values", "group", None):
            raise ValueError(f'reward_streams.baseline must be "values", "group" or null, got {self.baseline!r}')

    def reads(self) -> frozenset[str]:
        read = {"action_mask", "episode", "step", *self.gammas}
        read |= {"is_last", "bootstrap_value"} if "reward" in self.gammas else set()
        read |= {"values": {"values"}, "group": {"group"}}.get(self.baseline or "", set())
        return frozenset(read)

    def writes(self) -> frozenset[str]:
        return frozenset({"advantages", "returns"} if self.baseline == "values" else {"advantages"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        mask = batch["action_mask"]
        timeline = Timeline(batch, mask)
        returns = torch.stack([self._returns(name, batch, timeline) for name in self.gammas]).sum(0)
        columns = {"returns": timeline.unpack(returns)} if self.baseline == "values" else {}
        advantages = timeline.unpack(returns) - self._baseline(returns, batch, timeline)
        advantages = zero_outside(advantages, mask)
        if self.whiten:
            advantages = whiten(advantages, mask, ctx)
        return batch.with_columns(advantages=advantages, **columns)

    def _returns(self, name: str, batch: Batch, timeline: Timeline) -> Tensor:
        """[E, H] discounted returns of one stream."""
        column = batch[name].float()
        if name != "reward":
            rewards, following = timeline.pack(column), torch.zeros(len(timeline.ids))
        else:
            rewards = timeline.rewards(column)
            following = timeline.at_end(batch["is_last"], batch["bootstrap_value"].float(), batch["action_mask"])
        return discounted_returns(rewards, timeline.mask, following, self.gammas[name])

    def _baseline(self, returns: Tensor, batch: Batch, timeline: Timeline) -> Tensor | float:
        """[N, T] or [N, 1] what the returns are compared with."""
        if self.baseline is None:
            return 0.0
        if self.baseline == "values":
            values = batch["values"].float()
            if values.dim() != 2:
                raise ValueError(
                    "reward_streams.baseline=values needs values per choice, and the policy's are per row; "
                    "set baseline=group"
                )
            return zero_outside(values, batch["action_mask"])
        group = batch["group"].new_zeros(len(timeline.ids)).scatter(0, timeline.episode, batch["group"])
        first = returns[:, 0] if returns.shape[1] else returns.new_zeros(len(returns))
        return group_mean(first.double(), group, timeline.mask.any(1))[0].float()[timeline.episode][:, None]
