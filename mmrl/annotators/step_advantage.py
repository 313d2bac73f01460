"""Process-supervised group advantages: step rewards to go, normalised in the group."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from mmrl.annotators.base import Annotator
from mmrl.core.batch import Batch
from mmrl.core.types import Context
from mmrl.ops.advantage import step_advantage
from mmrl.ops.masked import zero_outside


@dataclass(frozen=True)
class StepAdvantage(Annotator):
    """GRPO's process supervision: the sum of the normalised rewards of a token's own and later steps.

    r~ = (r - mean(R)) / (std(R) + epsilon), with R the rewards of all steps of the group; A_t is the sum of r~ over the
    steps that end at or after t. It is added to the advantages of the outcome: put `group_advantage` before it.
    Source: Shao et al., "DeepSeekMath", arXiv 2402.03300, section 4.1.3.

    Args:
        weight: of the process advantage.
        normalise: subtract the mean of the group's step rewards and divide by their standard deviation, before the sum.
            Otherwise the mean of the group's sums is subtracted once, so that delta rewards still telescope.
        epsilon: is added to the standard deviation.
    """

    weight: float = 1.0
    normalise: bool = True
    epsilon: float = 1e-4

    def reads(self) -> frozenset[str]:
        return frozenset({"advantages", "token_rewards", "segment", "group", "action_mask"})

    def writes(self) -> frozenset[str]:
        return frozenset({"advantages"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        columns = batch["token_rewards"].float(), batch["segment"], batch["group"], batch["action_mask"]
        process = step_advantage(*columns, self.normalise, self.epsilon)
        outcome = zero_outside(batch["advantages"], batch["action_mask"])
        return batch.with_columns(advantages=torch.add(outcome, process, alpha=self.weight))
