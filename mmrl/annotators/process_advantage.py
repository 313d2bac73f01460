"""Advantages from process rewards and the outcome together (PRIME)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from mmrl.annotators.base import Annotator
from mmrl.annotators.gae import Timeline
from mmrl.batch import Batch
from mmrl.ops.masked import zero_outside
from mmrl.ops.process_reward import implicit_reward, leave_one_out_process
from mmrl.types import Context


@dataclass(frozen=True)
class ProcessAdvantage(Annotator):
    """Return to go of implicit token rewards and of the episode's reward, each against the other episodes, whitened.

    Mean 0 and sample variance 1 over the choices of all ranks. The token rewards are log-ratios of a model to the
    reference, as `Logprobs` and `reference` write them, times the scale with which that model was trained: the reward
    of a token is r_t = beta q_t with the beta of the model's cross-entropy.
    Source: Process Reinforcement through Implicit Rewards, 2025, section 3, arXiv:2502.01456.

    Args:
        process: weight of the token rewards.
        outcome: weight of the episode's reward.
        scale: beta, logits per nat, the `scale` of the `OutcomeCrossEntropy` that trains the model.
        column: log-probs of the model.
        reference: log-probs of the reference.
    """

    process: float = 5.0
    outcome: float = 5.0
    scale: float = 0.05
    column: str = "reward_logprobs"
    reference: str = "ref_logprobs"

    writes = frozenset({"advantages"})

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"action_mask", "group", "episode", "step", "episode_reward", self.column, self.reference})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        mask = batch["action_mask"]
        timeline = Timeline(batch, mask)
        token = self.scale * implicit_reward(batch[self.column], batch[self.reference], mask)
        of = torch.zeros(len(timeline.ids), dtype=torch.long)
        outcome = of.float().scatter(0, timeline.episode, batch["episode_reward"].float())
        group = of.scatter(0, timeline.episode, batch["group"])
        to_go = leave_one_out_process(timeline.pack(token), outcome, timeline.mask, group, (self.process, self.outcome))
        return batch.with_columns(advantages=_whitened(timeline.unpack(to_go), mask, ctx))

    def metrics(self, batch: Batch, ctx: Context) -> dict[str, float]:
        """Share of the answers whose sum of token rewards has the sign of their outcome, above one half or not."""
        mask = batch["action_mask"]
        said = implicit_reward(batch[self.column], batch[self.reference], mask).sum(1) > 0
        right = (said == (batch["episode_reward"] > 0.5))[mask.any(1)]
        hits, count = map(sum, zip(*ctx.collector.gather([(int(right.sum()), len(right))])))
        return {"agreement": hits / count} if count else {}


def _whitened(value: torch.Tensor, mask: torch.Tensor, ctx: Context) -> torch.Tensor:
    inside = value[mask].double()
    parts = ctx.collector.gather([(len(inside), float(inside.sum()), float(inside.square().sum()))])
    count, total, squares = map(sum, zip(*parts))
    mean = total / max(count, 1)
    variance = max(squares - count * mean**2, 0.0) / max(count - 1, 1)
    return zero_outside(((value - mean) / (variance**0.5 + 1e-8)).float(), mask)
