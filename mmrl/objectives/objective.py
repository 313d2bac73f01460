"""What is minimised: a weighted sum of named terms, and the only place in the project that reduces."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from mmrl.batch import Batch
from mmrl.types import PolicyOutput


class Term(ABC):
    """One summand of the loss, per choice [N, T] or per row [N], to be minimised. It never reduces."""

    reads: frozenset[str] = frozenset()  # columns of the batch
    needs: frozenset[str] = frozenset()  # parts of the policy's output beyond logprobs and entropy: "values", ...

    @abstractmethod
    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor: ...

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """Diagnostics of the same shapes, averaged with the same weights."""
        return {}


class Objective(nn.Module):
    """loss = sum_k coefficient_k * sum_nt weights[n, t] * term_k[n, t].

    The `weights` column makes the reduction (token mean, sequence mean, ...) and already accounts for the size of the
    optimiser window, gradient accumulation and the number of processes. A term per row is weighted by its row's sum.
    Entries with weight zero may be NaN and change nothing.

    Args:
        terms: named summands.
        coefficients: factor of each term, 1 where none is given. Buffers: they can be scheduled and are saved.
        rows: for some terms, the boolean column of the rows that they apply to.
    """

    def __init__(
        self,
        terms: dict[str, Term],
        coefficients: dict[str, float] | None = None,
        rows: dict[str, str] | None = None,
    ):
        super().__init__()
        if not terms:
            raise ValueError("objective.terms is empty: name at least one term")
        for given, word in ((coefficients or {}, "coefficients"), (rows or {}, "rows")):
            unknown = sorted(set(given) - set(terms))
            if unknown:
                raise ValueError(f"objective.{word} names {unknown}, but the terms are {sorted(terms)}")
        self.terms = dict(terms)
        self.rows = dict(rows or {})
        for name in terms:
            value = torch.tensor(float((coefficients or {}).get(name, 1.0)))
            self.register_buffer(f"coefficient_{name}", value)

    @property
    def reads(self) -> frozenset[str]:
        """Every column that the loss needs."""
        return frozenset({"weights"}).union(self.rows.values(), *(term.reads for term in self.terms.values()))

    def coefficient(self, name: str) -> Tensor:
        return getattr(self, f"coefficient_{name}")

    def forward(self, out: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The scalar loss and its named parts, each already averaged with the weights."""
        loss, metrics = self.total(out, batch)
        # the anchor keeps every head in the graph, so that collectives of DDP and FSDP agree on all ranks
        return loss + 0.0 * torch.stack(
            [part.float().nan_to_num(0, 0, 0).sum() for part in _outputs(out)]
        ).sum(), metrics

    def total(self, out: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The same of those parts of the output alone that the terms read."""
        batch.require(self.reads, "objective")
        weights = batch["weights"]
        loss: Tensor | float = 0.0
        metrics: dict[str, Tensor] = {}
        for name, term in self.terms.items():
            share = weights if name not in self.rows else weights * batch[self.rows[name]][:, None]
            value = weighted_sum(term(out, batch), share, f"term {name!r}")
            loss = loss + self.coefficient(name) * value
            metrics[name] = value.detach()
            with torch.no_grad():
                for key, entry in term.metrics(out, batch).items():
                    metrics[f"{name}/{key}"] = weighted_sum(entry, share, f"metric {name}/{key}")
        assert isinstance(loss, Tensor)  # there is at least one term
        return loss, metrics


def weighted_sum(value: Tensor, weights: Tensor, part: str) -> Tensor:
    """Sum of value times weight over [N, T], or over [N] with the row sums of the weights. Weight 0 hides NaN."""
    if value.dim() == 1:
        weights = weights.sum(dim=1)
    if value.shape != weights.shape:
        raise ValueError(f"{part} has shape {tuple(value.shape)}, expected {tuple(weights.shape)}")
    return (torch.where(weights != 0, value, 0) * weights).sum()


def _outputs(out: PolicyOutput) -> list[Tensor]:
    parts = [out.logprobs, out.entropy, *_tensors(out.extra)]
    return parts if out.values is None else [*parts, out.values]


def _tensors(extra: Mapping[str, Tensor]) -> list[Tensor]:
    return [value for value in extra.values() if value.is_floating_point() and value.requires_grad]
