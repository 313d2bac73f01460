"""Apply an output layer to hidden states chunk by chunk: all of its outputs never exist at once, gradient included.

Logits of M tokens and V ids are M * V numbers, and their gradient as many again. What a loss needs of them is a few
numbers a token. The forward pass computes the logits of a chunk of tokens, keeps those numbers and frees the logits;
the backward pass computes the logits of the chunk again. A step costs one more product of the layer for that, and the
gradient of the layer's weight is added up in place.
Source: the chunked losses of torchtune and Liger Kernel (arXiv:2410.10989, section 3.2) do the same for one loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call
from torch.nn import functional as F

from mmrl.ops.logprob import precision

Score = Callable[[Tensor, slice], Sequence[Tensor]]
"""Score: from the layer's outputs [m, V] for the rows `at` to tensors [m, ...]."""


def apply_in_chunks(layer: nn.Module, hidden: Tensor, score: Score, rows: int) -> tuple[Tensor, ...]:
    """Compute score(layer(hidden)) with the layer's outputs of at most `rows` rows at once.

    Args:
        layer: from [m, H] to [m, V], each row alone. It draws no random numbers, since it is computed twice.
        hidden: [M, H].
        score: of each row alone; nothing that it reads beside the layer's outputs has a gradient.
        rows: of a chunk.

    Returns:
        The tensors of `score` for all rows, [M, ...].
    """
    return _ChunkedLayer.apply(_Job(layer, score, rows), hidden, *layer.parameters())


@dataclass(frozen=True)
class _Job:
    layer: nn.Module
    score: Score
    rows: int

    @property
    def linear(self) -> bool:
        return type(self.layer) is nn.Linear

    def chunks(self, count: int) -> Iterator[slice]:
        return (slice(start, min(start + self.rows, count)) for start in range(0, count, self.rows))

    def operands(self, parameters: Sequence[Tensor], kind: str) -> list[Tensor]:
        """Return the parameters outside of autograd. Those of a linear layer are cast once, and not in every chunk.

        autocast would keep a cast that is made here, without a gradient, for later calls of the layer; it keeps none
        of what is detached.
        """
        detached = [parameter.detach() for parameter in parameters]
        if not self.linear or not torch.is_autocast_enabled(kind):
            return detached
        return [tensor.to(torch.get_autocast_dtype(kind)) for tensor in detached]

    def outputs(self, hidden: Tensor, operands: Sequence[Tensor]) -> Tensor:
        names = (name for name, _ in self.layer.named_parameters())
        return functional_call(self.layer, dict(zip(names, operands)), (hidden,))

    def gradients(self, logits: Tensor, at: slice, inputs: Sequence[Tensor], d_scores: Sequence[Tensor | None]) -> Any:
        """Gradients of the scores of a chunk with respect to the tensors `inputs`."""
        with torch.enable_grad():
            scores = self.score(logits, at)
        pairs = [(each, d[at]) for each, d in zip(scores, d_scores) if d is not None and each.requires_grad]
        if not pairs:
            return [None] * len(inputs)
        scores, d_scores = map(list, zip(*pairs))
        return torch.autograd.grad(scores, inputs, d_scores, allow_unused=True)


class _ChunkedLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, job: _Job, hidden: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        kind = hidden.device.type
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(hidden, *parameters)
        ctx.job = job
        ctx.autocast = {"dtype": torch.get_autocast_dtype(kind), "enabled": torch.is_autocast_enabled(kind)}
        operands = job.operands(parameters, kind)
        parts = [job.score(job.outputs(hidden[at], operands), at) for at in job.chunks(len(hidden))]
        return tuple(map(torch.cat, zip(*parts)))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *d_scores: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, *parameters = ctx.saved_tensors
        job, kind = ctx.job, hidden.device.type
        needed = ctx.needs_input_grad[1:]
        totals = [
            torch.zeros_like(tensor, dtype=precision(tensor)) if need else None
            for tensor, need in zip((hidden, *parameters), needed)
        ]
        add = _add_linear if job.linear else _add_any
        with torch.autocast(kind, **ctx.autocast):
            operands = job.operands(parameters, kind)
            for at in job.chunks(len(hidden)):
                into = [totals[0] if totals[0] is None else totals[0][at], *totals[1:]]
                add(job, hidden[at], operands, at, d_scores, into)
        sums = (
            None if total is None else total.to(tensor.dtype) for total, tensor in zip(totals, (hidden, *parameters))
        )
        return (None, *sums)


def _add_linear(
    job: _Job,
    hidden: Tensor,
    operands: Sequence[Tensor],
    at: slice,
    d_scores: Sequence[Tensor | None],
    into: Sequence[Tensor | None],
) -> None:
    """Add the gradients of a chunk of logits = hidden W^T + b: d W += d_logits^T hidden, without a second d W."""
    weight = operands[0]
    hidden = hidden.to(weight.dtype)
    logits = F.linear(hidden, *operands).requires_grad_()
    (d_logits,) = job.gradients(logits, at, [logits], d_scores)
    if d_logits is None:
        return
    d_hidden, d_weight, *d_bias = into
    if d_hidden is not None:
        d_hidden.add_(d_logits @ weight)
    if d_weight is not None and d_weight.dtype == d_logits.dtype:
        d_weight.addmm_(d_logits.t(), hidden)
    elif d_weight is not None:
        d_weight.add_(d_logits.t() @ hidden)
    if d_bias and d_bias[0] is not None:
        d_bias[0].add_(d_logits.sum(0, dtype=d_bias[0].dtype))


def _add_any(
    job: _Job,
    hidden: Tensor,
    operands: Sequence[Tensor],
    at: slice,
    d_scores: Sequence[Tensor | None],
    into: Sequence[Tensor | None],
) -> None:
    """Add the gradients of a chunk of any layer, such as one with adapters."""
    leaves = [tensor.detach().requires_grad_(total is not None) for tensor, total in zip((hidden, *operands), into)]
    with torch.enable_grad():
        logits = job.outputs(leaves[0], leaves[1:])
    pairs = [(leaf, total) for leaf, total in zip(leaves, into) if total is not None]
    for (_, total), gradient in zip(pairs, job.gradients(logits, at, [leaf for leaf, _ in pairs], d_scores)):
        if gradient is not None:
            total.add_(gradient)
