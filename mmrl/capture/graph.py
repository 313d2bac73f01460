"""CapturedGraph: replay the traced tensor operations of a computation in place of its Python code."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Mapping

import torch
from torch import Tensor

from mmrl.capture.tracing import Compute, Tensors, trace_gradients

log = logging.getLogger(__name__)

MIN_CALLS = 64  # calls of one kind before capture, which takes as long as some hundred of a small network's updates
MAX_GRAPHS = 8  # kinds that are captured


class CapturedGraph:
    """Runs a computation, and after some calls the graph captured from it instead.

    In small networks Python and autograd take several times as long as the arithmetic. A graph is used only after its
    output matched the computation bit for bit; `revalidate` repeats that comparison, so no result changes. A graph that
    differs, or that would freeze random draws or decisions that depend on values, is discarded. Operations refer to
    parameters and not to their values, so a graph lasts while training changes them in place.

    Args:
        what: name of the computation, for the log.
        min_calls: calls of one kind before it is captured; None: enough to pay off for a small network's updates.
    """

    def __init__(self, what: str, min_calls: int | None = None):
        self.what, self.min_calls = what, MIN_CALLS if min_calls is None else min_calls
        self.graphs: dict[Hashable, Compute | None] = {}  # None where the computation itself runs
        self.verified: dict[Hashable, set[Hashable]] = {}  # by kind, the cases in which its graph gave the same
        self._calls: Counter[Hashable] = Counter()
        self._current: set[Hashable] = set()  # kinds that were compared since the last `revalidate`

    def revalidate(self) -> None:
        """Compare every captured graph with the computation again at its next call."""
        self._current.clear()

    def __call__(self, compute: Compute, tensors: Mapping[str, Tensor], key: Hashable = ()) -> Tensors:
        """Return `compute` of these tensors, by a graph captured for their shapes.

        Args:
            compute: from named tensors to named tensors without gradient; it may take gradients inside.
            tensors: all that it reads, apart from parameters.
            key: what else it depends on.
        """
        kind = (key, *((name, tensor.shape, tensor.dtype) for name, tensor in tensors.items()))
        return self.run(compute, lambda: trace_gradients(compute, tensors), tensors, kind)

    def run(
        self,
        compute: Compute,
        trace: Callable[[], Compute],
        tensors: Mapping[str, Tensor],
        kind: Hashable,
        cases: frozenset[Hashable] = frozenset(),
    ) -> Tensors:
        """Return `compute` of these tensors, by one graph for all sizes of the inputs.

        Args:
            compute: runs after the graph where the two are compared, so that what it writes in place stays.
            trace: gives the graph.
            tensors: of the graph; `compute` gets them too.
            kind: what the graph depends on.
            cases: the graph is used only where it was compared in each of these.
        """
        graph = self.graphs.get(kind)
        if graph is not None and kind in self._current and cases <= self.verified[kind]:
            return graph(dict(tensors))
        self._calls[kind] += 1
        if kind not in self.graphs and self._calls[kind] > self.min_calls and len(self.graphs) < MAX_GRAPHS:
            try:
                self.graphs[kind] = graph = trace()
            except Exception as error:  # whatever the code of a policy, or torch, says about it
                self._discard(kind, str(error).strip().split("\n")[0])
        outputs = graph(dict(tensors)) if graph is not None else {}
        expected = compute(dict(tensors))
        if graph is not None:
            if _same(outputs, expected):
                self._current.add(kind)
                self.verified.setdefault(kind, set()).update(cases)
            else:
                self._discard(kind, "replayed numbers differ")
        return expected

    def _discard(self, kind: Hashable, reason: str) -> None:
        log.info("%s runs its own code: %s", self.what, reason)
        self.graphs[kind] = None


def _same(outputs: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> bool:
    return outputs.keys() == expected.keys() and all(_equal(outputs[name], part) for name, part in expected.items())


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and bool(torch.all((one == other) | (other != other)))
