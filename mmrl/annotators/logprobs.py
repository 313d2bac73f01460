"""Log-probabilities of the stored choices under frozen weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mmrl.annotators.base import Annotator
from mmrl.core.batch import Batch
from mmrl.core.columns import COLLATED
from mmrl.core.errors import check_at_least
from mmrl.core.evaluation_mode import evaluation_mode
from mmrl.core.types import Context, PolicyOutput
from mmrl.distributed.sequence_group import get_scoring_group
from mmrl.transforms.rows.shared_rows import SharedRows


def score_rows(
    model: nn.Module,
    batch: Batch,
    column: Callable[[PolicyOutput], Tensor],
    rows: int,
    device: torch.device,
) -> Tensor:
    """Return one entry of the model's output for all rows; see `evaluate_rows`."""
    return evaluate_rows(model, batch, lambda on_device: column(model(on_device)), rows, device)


def evaluate_rows(
    model: nn.Module, batch: Batch, say: Callable[[Batch], Tensor], rows: int, device: torch.device
) -> Tensor:
    """Run a model in evaluation mode on all rows, `rows` at a time; the outputs are on the CPU.

    They are [N], [N, T] or [N, T, ...]. Episodes of one prompt go together, since a policy may read their prompt once.
    Processes that divide sequences compute the rows of all of them (`share_scoring`).
    """
    group = get_scoring_group(model)
    if group.size == 1:
        return _evaluate_rows(model, batch, say, rows, device)
    whole, local = SharedRows(group, model).gather(batch)  # type: ignore[arg-type]  # a policy, which divides
    with group.divide():
        outputs = _evaluate_rows(model, whole, say, rows, device)[local]
    # the rows of others may have more choices
    return outputs[:, : batch["action"].shape[1]] if outputs.dim() > 1 else outputs


@torch.no_grad()
def _evaluate_rows(
    model: nn.Module, batch: Batch, say: Callable[[Batch], Tensor], rows: int, device: torch.device
) -> Tensor:
    pieces = []
    order = batch["prompt_id"].argsort(stable=True)
    with evaluation_mode(model):
        for piece in batch.select(order).split(rows):
            on_device = Batch({name: part.to(device) for name, part in piece.items()})
            pieces.append(say(on_device).float().cpu())
    return torch.cat(pieces)[order.argsort()]


def positive_rows(rows: int, part: str) -> None:
    """Refuse a number of rows per forward pass that makes no progress."""
    check_at_least(1, part, rows=rows)


def reference_of(ctx: Context, part: str) -> nn.Module:
    """Return the frozen reference model, a copy of the initial policy, which this part needs."""
    if "reference" not in ctx.models:
        raise KeyError(f"{part} needs a frozen copy of the starting policy: set model.reference=true")
    return ctx.models["reference"]


@dataclass(frozen=True)
class ForwardAnnotator(Annotator):
    """Base class of annotators that run a model on all rows.

    Args:
        rows: contexts per forward pass; lower it when memory runs out.
    """

    rows: int = 64

    def __post_init__(self) -> None:
        positive_rows(self.rows, type(self).__name__)

    def reads(self) -> frozenset[str]:
        return COLLATED


@dataclass(frozen=True)
class ReferenceLogprobs(ForwardAnnotator):
    """Log-probs of the stored choices under the frozen reference policy (column `ref_logprobs`)."""

    def writes(self) -> frozenset[str]:
        return frozenset({"ref_logprobs"})

    def models(self) -> frozenset[str]:
        return frozenset({"reference"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        reference = reference_of(ctx, "reference_logprobs")
        return batch.with_columns(ref_logprobs=score_rows(reference, batch, _logprobs, self.rows, ctx.device))


@dataclass(frozen=True)
class OldLogprobs(ForwardAnnotator):
    """Log-probs of the stored choices under the policy before this iteration's updates, computed by the learner."""

    def writes(self) -> frozenset[str]:
        return frozenset({"old_logprobs"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        return batch.with_columns(old_logprobs=score_rows(ctx.policy, batch, _logprobs, self.rows, ctx.device))


@dataclass(frozen=True, kw_only=True)
class Logprobs(ForwardAnnotator):
    """Log-probs of the stored choices before this iteration's updates, under a chosen model and in a chosen context.

    Args:
        column: that it is written to.
        model: one of the learner's models; none for the policy.
        context: another context of `data.transforms`; none for the one in which the choice was made.
    """

    column: str
    model: str | None = None
    context: str | None = None

    def writes(self) -> frozenset[str]:
        return frozenset({self.column})

    def models(self) -> frozenset[str]:
        return frozenset() if self.model is None else frozenset({self.model})

    def contexts(self) -> frozenset[str]:
        return frozenset() if self.context is None else frozenset({self.context})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        if self.model is not None and self.model not in ctx.models:
            raise KeyError(f"annotator logprobs: the learner has no model {self.model!r}, only {sorted(ctx.models)}")
        model = ctx.policy if self.model is None else ctx.models[self.model]
        inputs = batch if self.context is None else batch.with_context(self.context)
        return batch.with_columns(**{self.column: score_rows(model, inputs, _logprobs, self.rows, ctx.device)})


def _logprobs(out: PolicyOutput) -> Tensor:
    return out.logprobs
