"""Columns of a model's output at the stored choices: its log-probs, entropy and statistics, in one forward pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.annotators.logprobs import ForwardAnnotator, score_rows
from mmrl.core.batch import Batch
from mmrl.core.types import Context, PolicyOutput

ALWAYS = ("logprobs", "entropy")
"""Parts of every policy's output; the others are statistics."""


@dataclass(frozen=True, kw_only=True)
class StatisticColumns(ForwardAnnotator):
    """Store parts of a model's output [N, T] before this iteration's updates as columns, all from one forward pass.

    The model is the policy or another one, in the context in which the choices were made or in another one.

    Args:
        columns: name of the part by the column that it is written to, as {min_p_probs: min_p}: a statistic of
            model.policy.statistics, which copies of the policy have too, or "logprobs" or "entropy".
        model: one of the learner's models; none for the policy.
        context: another context of `data.transforms`; none for the one in which the choice was made.
    """

    columns: Mapping[str, str]
    model: str | None = None
    context: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.columns:
            raise ValueError("statistic_columns.columns is empty: name a column and the part of the output in it")

    def needs(self) -> frozenset[str]:
        return frozenset(self.columns.values()) - frozenset(ALWAYS)

    def writes(self) -> frozenset[str]:
        return frozenset(self.columns)

    def models(self) -> frozenset[str]:
        return frozenset() if self.model is None else frozenset({self.model})

    def contexts(self) -> frozenset[str]:
        return frozenset() if self.context is None else frozenset({self.context})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        if self.model is not None and self.model not in ctx.models:
            raise KeyError(
                f"annotator statistic_columns: the learner has no model {self.model!r}, only {sorted(ctx.models)}"
            )
        model = ctx.policy if self.model is None else ctx.models[self.model]
        inputs = batch if self.context is None else batch.with_context(self.context)
        values = score_rows(model, inputs, self._parts, self.rows, ctx.device)
        return batch.with_columns(**{name: part.clone() for name, part in zip(self.columns, values.unbind(-1))})

    def _parts(self, out: PolicyOutput) -> Tensor:
        """[N, T, number of columns]."""
        parts = {"logprobs": out.logprobs, "entropy": out.entropy, **out.extra}
        if missing := sorted(set(self.columns.values()) - set(parts)):
            raise ValueError(f"the model's output has no {missing}; name them under model.policy.statistics")
        columns = [parts[name] for name in self.columns.values()]
        for name, part in zip(self.columns.values(), columns):
            if part.shape != out.logprobs.shape:
                raise ValueError(
                    f"annotator statistic_columns: {name} has shape {tuple(part.shape)}, and a column has one number "
                    f"per choice, {tuple(out.logprobs.shape)}"
                )
        return torch.stack([part.float() for part in columns], dim=-1)
