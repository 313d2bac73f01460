"""Gradient step of an off-policy update whose forward pass gives columns to the phases after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mmrl.core.batch import Batch
from mmrl.learners.phases.base import UpdateContext
from mmrl.learners.phases.gradient_step import GradientStep


class WritingStep(GradientStep):
    """WritingStep: one optimizer step on an objective, and parts of its forward pass as columns of the batch.

    The columns have the values from before the step, and no gradient.

    Args:
        columns: names of parts of the output, which become columns of the same names.
        kwargs: as of `GradientStep`.
    """

    def __init__(self, *args: Any, columns: Sequence[str] = (), **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.columns = tuple(columns)

    def writes(self) -> frozenset[str]:
        return frozenset(self.columns)

    def check(self) -> None:
        super().check()
        if missing := sorted(set(self.columns) - self.output.gives()):
            raise ValueError(
                f"WritingStep.columns names {missing}, but {type(self.output).__name__} gives "
                f"{sorted(self.output.gives())}"
            )

    def __call__(self, batch: Batch, ctx: UpdateContext) -> Batch:
        out = self.output(batch, ctx)
        loss, metrics = self.objective.total(out, batch)
        ctx.minimize(loss)
        ctx.log(metrics)
        return batch.with_columns(**{name: out.extra[name].detach() for name in self.columns})
