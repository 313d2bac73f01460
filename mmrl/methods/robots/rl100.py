"""RL-100: distil the teacher's denoising chain of many steps into one denoising step.

RL-100: Performant Robotic Manipulation with Real-World Reinforcement Learning, 2025, arXiv:2510.14830.

- the end of the teacher's chain as target: `DistillationTarget`
- the online objective: `mmrl.objectives.policy_chain.ChainSurrogate`, which other papers share
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from mmrl.annotators.logprobs import ForwardAnnotator, evaluate_rows, reference_of
from mmrl.core.batch import Batch
from mmrl.core.types import Context


@dataclass(frozen=True)
class DistillationTarget(ForwardAnnotator):
    """Distillation target: the end of every row's chain becomes the frozen reference's chunk from the same noise.

    Rows are chains of one transition, x_0 to x_1, in states that the policy itself visited. The reference is the
    starting policy with the sampler `policy.teacher`, for example of many transitions. Where the policy's std s is
    fixed, the likelihood of the new end, -log N(x_1; f(x_0), s^2), is the squared error of one-step distillation over
    2 s^2. Source: RL-100, 2025, the consistency head, arXiv:2510.14830; Consistency Models, 2023, arXiv:2303.01469.
    Differs: only from the noise, not from the states between.
    """

    def writes(self) -> frozenset[str]:
        return frozenset({"action"})

    def models(self) -> frozenset[str]:
        return frozenset({"reference"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        reference = reference_of(ctx, "distillation_target")
        if not hasattr(reference, "distillation_target"):
            raise ValueError(f"distillation_target: {type(reference).__name__} has no chain from noise to actions")
        chunk = evaluate_rows(reference, batch, reference.distillation_target, self.rows, ctx.device)  # type: ignore[arg-type]
        before = batch["action"][:, : -chunk.shape[1]]
        return batch.with_columns(action=torch.cat([before, chunk.to(before.dtype)], dim=1))
