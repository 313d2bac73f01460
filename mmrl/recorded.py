"""CapturedGraph: trace the tensor operations of a computation once and replay them on other inputs."""

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

MIN_CALLS = 64  # calls of one kind before capture, which takes as long as some hundred of a small network's updates
MAX_GRAPHS = 8  # kinds that are captured
VALUE_DEPENDENT = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
"""Tags of operations whose result depends on values of tensors."""


class CapturedGraph:
    """Runs a computation, including gradients inside it, and after some calls the graph captured from it instead.

    In small networks Python and autograd take several times as long as the arithmetic. A captured graph is used only
    after its output matched the computation bit for bit; `revalidate` repeats that comparison, so no result changes. A
    graph that differs, or that would freeze random draws or decisions that depend on values, is discarded. Operations
    refer to parameters and not to their values, so a graph lasts while training changes them in place.

    Args:
        what: name of the computation, for the log.
        min_calls: calls of one kind before it is captured; None: enough to pay off for a small network's updates.
    """

    def __init__(self, what: str, min_calls: int | None = None):
        self.what, self.min_calls = what, MIN_CALLS if min_calls is None else min_calls
        self._calls: Counter[Hashable] = Counter()
        self._graphs: dict[Hashable, Compute | None] = {}
        self._verified: set[Hashable] = set()

    def revalidate(self) -> None:
        """Compare every captured graph with the computation again at its next call."""
        self._verified.clear()

    def __call__(self, compute: Compute, tensors: Named, key: Hashable = ()) -> dict[str, Tensor]:
        """What `compute` gives for these tensors.

        Args:
            compute: from named tensors to named tensors without gradient.
            tensors: all that it reads, apart from parameters.
            key: what else it depends on.
        """
        kind = (key, *((name, tensor.shape, tensor.dtype) for name, tensor in tensors.items()))
        graph = self._graphs.get(kind)
        if graph is not None and kind in self._verified:
            return graph(dict(tensors))
        expected = compute(dict(tensors))
        self._calls[kind] += 1
        if kind not in self._graphs and self._calls[kind] > self.min_calls and len(self._graphs) < MAX_GRAPHS:
            self._graphs[kind] = graph = self._capture(compute, tensors)
        if graph is not None:
            if _same(graph(dict(tensors)), expected):
                self._verified.add(kind)
            else:
                self._discard(kind, "replayed numbers differ")
        return expected

    def _capture(self, compute: Compute, tensors: Named) -> Compute | None:
        try:
            return _trace(compute, dict(tensors))
        except Exception as error:  # whatever the code of a policy, or torch, says about it
            log.info("%s keeps its own code: %s", self.what, str(error).strip().split("\n")[0])
            return None

    def _discard(self, kind: Hashable, reason: str) -> None:
        log.info("%s keeps its own code: %s", self.what, reason)
        self._graphs[kind] = None


def _trace(compute: Compute, tensors: dict[str, Tensor]) -> Compute:
    """Trace a computation into operations that torch runs without Python."""
    places, names = list(tensors), list[str]()

    def compute_flat(*values: Tensor) -> list[Tensor]:
        found = compute(dict(zip(places, values)))
        names[:] = found
        return list(found.values())

    traced = make_fx(compute_flat)(*tensors.values())
    _refuse_hidden(traced.graph)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the output is a list
        run = torch.jit.trace(traced, tuple(tensors.values()), check_trace=False)

    @torch.no_grad()
    def replay(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        with torch.jit.optimized_execution(False):  # which would take a product and its bias apart: other bits
            return dict(zip(names, run(*inputs.values())))

    return replay


def _refuse_hidden(graph: fx.Graph) -> None:
    """Refuse operations whose draws or value-dependent results a graph would freeze."""
    for node in graph.nodes:
        tags = set(getattr(node.target, "tags", ())) if node.op == "call_function" else set()
        if VALUE_DEPENDENT & tags or (torch.Tag.nondeterministic_seeded in tags and _draws(node)):
            raise ValueError(f"it draws, or depends on values: {node.target}")


def _draws(node: fx.Node) -> bool:
    """Whether an operation that can draw does: attention does with dropout alone."""
    arguments = {argument.name: argument.default_value for argument in node.target._schema.arguments}  # type: ignore[union-attr]
    arguments |= dict(zip(arguments, node.args)) | dict(node.kwargs)
    return arguments.get("dropout_p") != 0


def _same(found: Named, expected: Named) -> bool:
    return found.keys() == expected.keys() and all(_equal(found[name], part) for name, part in expected.items())


def _equal(one: Any, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and bool(torch.all((one == other) | (other != other)))
