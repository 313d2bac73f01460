"""Objective: a weighted sum of named loss terms, and the only place in the project that reduces."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput


class Term(ABC):
    """One summand of the loss, per choice [N, T] or per row [N], to be minimised. It never reduces."""

    whole_groups: bool = False  # compares the rows of a group, which then never come into different micro-batches
    whole_micro_batches: bool = False  # compares the rows of a micro-batch, so that their number changes the loss

    def reads(self) -> frozenset[str]:
        """Columns of the batch."""
        return frozenset()

    def needs(self) -> frozenset[str]:
        """Parts of the policy's output beyond logprobs and entropy: "values", ..."""
        return frozenset()

    def others(self) -> frozenset[str]:
        """Further forward passes over the same choices: names of contexts or of trained auxiliary models."""
        return frozenset()

    @abstractmethod
    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor: ...

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """Diagnostics of the same shapes. `Objective.average` makes means of them, with the loss's weights."""
        return {}

    def loss_and_metrics(self, out: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the term and its metrics; override it where both share computation."""
        value = self(out, batch)
        with torch.no_grad():
            return value, self.metrics(out, batch)


class Objective(nn.Module):
    """loss = sum_k coefficient_k * sum_nt loss_weights[n, t] * term_k[n, t].

    The `loss_weights` column makes the reduction (token mean, sequence mean, ...) and already accounts for the size of
    the minibatch, gradient accumulation and the number of processes. A term per row is weighted by its row's sum.
    Entries with weight zero may be NaN and change nothing.

    Args:
        terms: named summands.
        coefficients: factor of each term, 1 where none is given. Buffers: they can be scheduled and are saved.
        row_masks: for some terms, the boolean column of the rows that they apply to, as is_demo; ~is_demo for the
            others.
    """

    def __init__(
        self,
        terms: dict[str, Term],
        coefficients: dict[str, float] | None = None,
        row_masks: dict[str, str] | None = None,
    ):
        super().__init__()
        if not terms:
            raise ValueError("objective.terms is empty: name at least one term")
        for entries, word in ((coefficients or {}, "coefficients"), (row_masks or {}, "row_masks")):
            unknown = sorted(set(entries) - set(terms))
            if unknown:
                raise ValueError(f"objective.{word} names {unknown}, but the terms are {sorted(terms)}")
        if WEIGHT in terms:
            raise ValueError(f"objective.terms.{WEIGHT}: this name is taken by the summed weights; choose another")
        self.terms = dict(terms)
        self.row_masks = dict(row_masks or {})
        self._unused: tuple[str, ...] | None = None  # parts of the policy's output that no term reads, once known
        for name in terms:
            value = torch.tensor(float((coefficients or {}).get(name, 1.0)))
            self.register_buffer(f"coefficient_{name}", value)

    def reads(self) -> frozenset[str]:
        """Every column that the loss needs."""
        rows = (column.removeprefix("~") for column in self.row_masks.values())
        return frozenset({"loss_weights"}).union(rows, *(term.reads() for term in self.terms.values()))

    def others(self) -> frozenset[str]:
        """Further forward passes that the terms need."""
        return frozenset().union(*(term.others() for term in self.terms.values()))

    @property
    def whole_groups(self) -> bool:
        """Whether a term compares the rows of a group."""
        return any(term.whole_groups for term in self.terms.values())

    def coefficient(self, name: str) -> Tensor:
        return getattr(self, f"coefficient_{name}")

    def disabled_terms(self) -> tuple[str, ...]:
        """Terms whose coefficient is 0 at this step, which have no gradient; none on a GPU, where asking costs more."""
        values = {name: self.coefficient(name) for name in self.terms}
        return tuple(name for name, value in values.items() if value.device.type == "cpu" and value.item() == 0)

    def forward(self, out: PolicyOutput, batch: Batch, with_metrics: bool = True) -> tuple[Tensor, dict[str, Tensor]]:
        """The scalar loss and its named parts; diagnostics, as sums for `average`, unless left out."""
        loss, metrics = self.total(out, batch, with_metrics)
        return self._touch_unused_outputs(loss, out), metrics

    def total(self, out: PolicyOutput, batch: Batch, with_metrics: bool = True) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the scalar loss from only those parts of the output that the terms read."""
        batch.require(self.reads(), "objective")
        sums_by_rows, disabled = self._weighted_sums(batch), self.disabled_terms()
        loss: Tensor | None = None
        metrics: dict[str, Tensor] = {}
        for name, term in self.terms.items():
            weighted = sums_by_rows[self.row_masks.get(name)]
            with torch.no_grad() if name in disabled else nullcontext():
                value, term_metrics = term.loss_and_metrics(out, batch) if with_metrics else (term(out, batch), {})
                value = weighted.sum(value, f"term {name!r}")
            part = self.coefficient(name) * value
            loss = part if loss is None else loss + part
            metrics[name] = value.detach()
            metrics |= weighted.sums(term_metrics, f"{name}/")
        assert loss is not None  # there is at least one term
        return loss, metrics | (_totals(sums_by_rows) if with_metrics else {})

    @torch.no_grad()
    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """Return only the metrics, as sums for `average`."""
        sums_by_rows, metrics = self._weighted_sums(batch), {}  # type: ignore[var-annotated]
        for name, term in self.terms.items():
            metrics |= sums_by_rows[self.row_masks.get(name)].sums(term.metrics(out, batch), f"{name}/")
        return metrics | _totals(sums_by_rows)

    def average(self, sums: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Parts of the loss as they are, and each diagnostic divided by the weight of the choices that it was over.

        Weights that do not sum to one, such as those of `ConstantLength`, therefore scale the loss and no diagnostic.
        Diagnostics of choices without any weight are left out.

        Args:
            sums: what `forward`, `total` or `metrics` gave, or the mean of several such results.
        """
        out: dict[str, Tensor] = {}
        for name, value in sums.items():
            term, _, diagnostic = name.partition("/")
            if term == WEIGHT:
                continue
            weight = sums[_weight_of(self.row_masks.get(term))] if diagnostic else None
            if weight is None or weight > 0:
                out[name] = value if weight is None else value / weight
        return out

    def _weighted_sums(self, batch: Batch) -> dict[str | None, WeightedReduction]:
        """One weighted sum per row mask that a term uses, and one over all rows."""
        weights = batch["loss_weights"]
        return {None: WeightedReduction(weights)} | {
            rows: WeightedReduction(weights * _select_rows(batch, rows)[:, None])
            for rows in set(self.row_masks.values())
        }

    def _touch_unused_outputs(self, loss: Tensor, out: PolicyOutput) -> Tensor:
        """Add outputs that no term reads to the loss, times 0, so that DDP and FSDP communicate alike on all ranks.

        Which outputs are unused is found on the first batch; parts in `extra` are always added.
        """
        parts = {"logprobs": out.logprobs, "entropy": out.entropy, "values": out.values}
        parts = {name: part for name, part in parts.items() if part is not None and part.requires_grad}
        if self._unused is None and loss.requires_grad:
            self._unused = _find_unused(loss, parts)  # type: ignore[arg-type]
        unused = [parts[name] for name in self._unused or () if name in parts]
        extra = {name: part for name, part in out.extra.items() if name not in SAME_WEIGHTS}
        unused += [part for part in extra.values() if part.is_floating_point() and part.requires_grad]
        if not unused:
            return loss
        # zero before they are summed: a sum of large numbers overflows, and 0 * inf is not a number
        return loss + torch.stack([(0.0 * part.float().nan_to_num(0, 0, 0)).sum() for part in unused]).sum()  # type: ignore[union-attr]


SAME_WEIGHTS = ("full_logprobs", "full_choice_logprobs")
"""Parts of an output behind which stand the same weights as behind its log-probs."""
WEIGHT = "weight"
"""Metric key of the summed loss weights; weight/MASK for a row mask."""


def _weight_of(rows: str | None) -> str:
    return WEIGHT if rows is None else f"{WEIGHT}/{rows}"


@torch.no_grad()
def _totals(sums_by_rows: Mapping[str | None, WeightedReduction]) -> dict[str, Tensor]:
    """The summed weights of all choices, and of those in the rows that some terms are over."""
    return {_weight_of(rows): weighted.weights.sum() for rows, weighted in sums_by_rows.items()}


def _select_rows(batch: Batch, rows: str) -> Tensor:
    """[N] bool: the rows of a column, or those outside it."""
    return ~batch[rows[1:]] if rows.startswith("~") else batch[rows]


class WeightedReduction:
    """Weighted sums over the choices of a batch, with weights [N, T]; entries of weight 0 may be NaN."""

    def __init__(self, weights: Tensor):
        self.weights = weights
        self._of: dict[int, tuple[Tensor, Tensor]] = {}  # weights and where they count, per choice and per row

    def sum(self, value: Tensor, part: str) -> Tensor:
        """Sum of value times weight over [N, T], or over [N] with the row sums of the weights."""
        weights, counted = self._for(value.dim())
        if value.shape != weights.shape:
            raise ValueError(f"{part} has shape {tuple(value.shape)}, expected {tuple(weights.shape)}")
        return (torch.where(counted, value, 0) * weights).sum()

    @torch.no_grad()
    def sums(self, values: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
        """The same of several values under prefixed names, those of one shape at once."""
        alike: dict[tuple[int, ...], list[str]] = {}
        for name, value in values.items():
            alike.setdefault(tuple(value.shape), []).append(name)
        out: dict[str, Tensor] = {}
        for shape, names in alike.items():
            weights, counted = self._for(len(shape))
            if shape != weights.shape:
                raise ValueError(f"metric {prefix}{names[0]} has shape {shape}, expected {tuple(weights.shape)}")
            stacked = torch.stack([values[name].to(weights.dtype) for name in names])
            out |= zip(names, (torch.where(counted, stacked, 0) * weights).flatten(1).sum(1).unbind())
        return {f"{prefix}{name}": out[name] for name in values}

    def _for(self, dims: int) -> tuple[Tensor, Tensor]:
        if dims not in self._of:
            weights = self.weights.sum(dim=1) if dims == 1 else self.weights
            self._of[dims] = weights, weights != 0
        return self._of[dims]


def _find_unused(loss: Tensor, parts: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Return the output tensors that the loss does not depend on."""
    nodes, graph = [loss.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is not None and node not in graph:
            graph.add(node)
            nodes += [following for following, _ in node.next_functions]
    leaves = {id(node.variable) for node in graph if hasattr(node, "variable")}
    unused = {name for name, part in parts.items() if part.grad_fn not in graph and id(part) not in leaves}
    if not {"logprobs", "entropy"} <= unused:  # two numbers about one distribution, behind which stand the same weights
        unused -= {"logprobs", "entropy"}
    return tuple(sorted(unused))
