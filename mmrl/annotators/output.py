"""Further numbers of the policy's forward pass as columns."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mmrl.annotators.base import Annotator
from mmrl.annotators.logprobs import positive_rows, scored
from mmrl.batch import Batch
from mmrl.columns import COLLATED
from mmrl.types import Context, PolicyOutput


@dataclass(frozen=True)
class OutputColumn(Annotator):
    """What the policy says of each choice before this iteration's updates, such as one of its `statistics`.

    Args:
        part: name in the `extra` of its output.
        column: that it is written to; its own name when left out.
        rows: contexts per forward pass; lower it when memory runs out.
    """

    part: str
    column: str | None = None
    rows: int = 64

    reads = COLLATED

    def __post_init__(self) -> None:
        positive_rows(self.rows, "output_column")

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({self.part})

    @property
    def writes(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({self.column or self.part})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        (column,) = self.writes
        return batch.with_columns(**{column: scored(ctx.policy, batch, self._part, self.rows, ctx.device)})

    def _part(self, out: PolicyOutput) -> Tensor:
        if self.part not in out.extra:
            raise ValueError(f"the policy's output has no {self.part!r}; name it under model.policy.statistics")
        return out.extra[self.part]
