"""Values of the stored rows under the policy's weights before the update."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mmrl.annotators.logprobs import ForwardAnnotator, score_rows
from mmrl.core.batch import Batch
from mmrl.core.types import Context, PolicyOutput


@dataclass(frozen=True)
class Values(ForwardAnnotator):
    """Values of the policy's value head, for policies that do not compute them when sampling."""

    def writes(self) -> frozenset[str]:
        return frozenset({"values"})

    def needs(self) -> frozenset[str]:
        return frozenset({"values"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        return batch.with_columns(values=score_rows(ctx.policy, batch, _values, self.rows, ctx.device))


def _values(out: PolicyOutput) -> Tensor:
    if out.values is None:
        raise ValueError("annotator values: the policy predicts no values; set model.policy.value_head=true")
    return out.values
