"""A computation without its Python: its tensor operations, recorded once and replayed on other numbers."""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

log = logging.getLogger(__name__)

Named = Mapping[str, Tensor]
Compute = Callable[[dict[str, Tensor]], dict[str, Tensor]]

PAYS = 64  # calls of one kind before it is recorded, which takes as long as some hundred of a small network's updates
MOST = 8  # kinds that are recorded
LEAVING = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
"""Marks of operations that hand values of tensors to Python."""


class Recorded:
    """Runs a computation, gradients inside it included, and after some calls its recorded operations instead.

    In small networks Python and autograd take several times as long as the arithmetic. A record is believed where it
    gave the same bits as the computation itself, again after every `doubt`, so it changes no result; one that differs,
    or that would hide draws or decisions that hang on values, is given up. Operations refer to parameters and not to
    their values, so a record lasts while training changes them in place.

    Args:
        what: it is, for the log.
        pays: calls of one kind before it is recorded; None: what pays for a small network's updates.
    """

    def __init__(self, what: str, pays: int | None = None):
        self.what, self.pays = what, PAYS if pays is None else pays
        self._calls: Counter[Hashable] = Counter()
        self._records: dict[Hashable, Compute | None] = {}
        self._believed: set[Hashable] = set()

    def doubt(self) -> None:
        """Compare every record once more when it is next asked for."""
        self._believed.clear()

    def __call__(self, compute: Compute, tensors: Named, key: Hashable = ()) -> dict[str, Tensor]:
        """What `compute` gives for these tensors.

        Args:
            compute: from named tensors to named tensors without gradient.
            tensors: all that it reads, apart from parameters.
            key: what else it depends on.
        """
        kind = (key, *((name, tensor.shape, tensor.dtype) for name, tensor in tensors.items()))
        record = self._records.get(kind)
        if record is not None and kind in self._believed:
            return record(dict(tensors))
        expected = compute(dict(tensors))
        self._calls[kind] += 1
        if kind not in self._records and self._calls[kind] > self.pays and len(self._records) < MOST:
            self._records[kind] = record = self._made(compute, tensors)
        if record is not None:
            if _same(record(dict(tensors)), expected):
                self._believed.add(kind)
            else:
                self._give_up(kind, "replayed numbers differ")
        return expected

    def _made(self, compute: Compute, tensors: Named) -> Compute | None:
        try:
            return _record(compute, dict(tensors))
        except Exception as error:  # whatever the code of a policy, or torch, says about it
            log.info("%s keeps its own code: %s", self.what, str(error).strip().split("\n")[0])
            return None

    def _give_up(self, kind: Hashable, reason: str) -> None:
        log.info("%s keeps its own code: %s", self.what, reason)
        self._records[kind] = None


def _record(compute: Compute, tensors: dict[str, Tensor]) -> Compute:
    """The operations of a computation, run by torch alone."""
    places, names = list(tensors), list[str]()

    def plain(*values: Tensor) -> list[Tensor]:
        found = compute(dict(zip(places, values)))
        names[:] = found
        return list(found.values())

    graph = make_fx(plain)(*tensors.values())
    _refuse_hidden(graph.graph)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the output is a list
        run = torch.jit.trace(graph, tuple(tensors.values()), check_trace=False)

    @torch.no_grad()
    def replayed(given: dict[str, Tensor]) -> dict[str, Tensor]:
        with torch.jit.optimized_execution(False):  # which would take a product and its bias apart: other bits
            return dict(zip(names, run(*given.values())))

    return replayed


def _refuse_hidden(graph: fx.Graph) -> None:
    """Draws would be repeated and values that Python has looked at would be those of now."""
    for node in graph.nodes:
        tags = set(getattr(node.target, "tags", ())) if node.op == "call_function" else set()
        if LEAVING & tags or (torch.Tag.nondeterministic_seeded in tags and _draws(node)):
            raise ValueError(f"it draws, or depends on values: {node.target}")


def _draws(node: fx.Node) -> bool:
    """Whether an operation that can draw does: attention does with dropout alone."""
    given = {argument.name: argument.default_value for argument in node.target._schema.arguments}  # type: ignore[union-attr]
    given |= dict(zip(given, node.args)) | dict(node.kwargs)
    return given.get("dropout_p") != 0


def _same(found: Named, expected: Named) -> bool:
    return found.keys() == expected.keys() and all(_equal(found[name], part) for name, part in expected.items())


def _equal(one: Any, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and bool(torch.all((one == other) | (other != other)))
