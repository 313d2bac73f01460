"""KTO's reference point: the KL divergence to the reference on completions of other prompts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.annotators.logprobs import ForwardAnnotator, reference_of, score_rows
from mmrl.core.batch import Batch
from mmrl.core.types import Context, PolicyOutput
from mmrl.ops.masked import masked_sum


@dataclass(frozen=True)
class MismatchedKL(ForwardAnnotator):
    """Estimate KTO's reference point z0 from completions that are scored after the prompt of the next group.

    z0 = max(0, mean over rows of sum_t log pi(y | x') - log pi_ref(y | x')), over the rows of all processes, before the
    iteration's updates; x' is the prompt of the next group, the first one's for the last. A process needs two groups or
    more. Source: KTO: Model Alignment as Prospect Theoretic Optimization, 2024, section 4.1, arXiv:2402.01306, which
    takes the rows of a microbatch.
    """

    def writes(self) -> frozenset[str]:
        return frozenset({"reference_point"})

    def models(self) -> frozenset[str]:
        return frozenset({"reference"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        reference, counted = reference_of(ctx, "mismatched_kl"), batch["action_mask"].any(1)
        if len(batch["group"][counted].unique()) == 1:
            raise ValueError(
                "annotator mismatched_kl: all completions of a process are of one prompt, so none can be scored after "
                "another prompt; raise data.num_prompts"
            )
        moved = swap_prompts(batch)
        policy, ref = (score_rows(model, moved, _logprobs, self.rows, ctx.device) for model in (ctx.policy, reference))
        mine = masked_sum(policy.double() - ref.double(), batch["action_mask"], dim=1)[counted].tolist()
        everyone = ctx.collector.gather(mine)
        point = max(0.0, math.fsum(everyone) / max(len(everyone), 1))
        return batch.with_columns(reference_point=torch.full((batch.rows,), point))


def swap_prompts(batch: Batch) -> Batch:
    """Return the same choices after the prompt of the next group, in the order of the group numbers."""
    order = batch["step"].argsort(stable=True)
    for name in ("episode", "group"):
        order = order[batch[name][order].argsort(stable=True)]
    groups, place = batch["group"].unique(return_inverse=True)
    ordered = place[order]
    first = order[torch.searchsorted(ordered, torch.arange(len(groups)))]  # the first row of each group
    source = first[(place + 1) % len(groups)]
    moved = [name for name in batch if name.startswith("obs.") or name in ("prompt_id", "prompt_length")]
    return batch.with_columns(**{name: batch[name][source] for name in moved})


def _logprobs(out: PolicyOutput) -> Tensor:
    return out.logprobs
