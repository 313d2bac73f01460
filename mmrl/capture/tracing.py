"""Trace a computation to operations that TorchScript runs without Python; refuse what a trace would lose."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

Tensors = dict[str, Tensor]
Compute = Callable[[Tensors], Tensors]

VALUE_DEPENDENT = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
"""Tags of operations whose result depends on values of tensors."""


def trace_gradients(compute: Compute, tensors: Mapping[str, Tensor]) -> Compute:
    """Trace a computation that may take gradients inside, for inputs of these shapes.

    Parameters are referred to, so a trace lasts while training changes them in place.

    Raises:
        ValueError: where the computation draws random numbers or depends on values of its inputs.
    """
    inputs, outputs = list(tensors), list[str]()

    def compute_flat(*values: Tensor) -> list[Tensor]:
        results = compute(dict(zip(inputs, values)))
        outputs[:] = results
        return list(results.values())

    traced = make_fx(compute_flat)(*tensors.values())
    for node in traced.graph.nodes:
        if node.op == "call_function":
            _check(node.target, node.args, node.kwargs)
    script = _script(traced, list(tensors.values()))
    return lambda arguments: dict(zip(outputs, _run(script, arguments.values())))


def trace_any_size(module: nn.Module, tensors: Mapping[str, Tensor]) -> Compute:
    """Trace a module that returns one tensor and takes no gradient; its sizes stay variables.

    Raises:
        ValueError: where its code draws, depends on values of its inputs, or holds numbers that are none of its
            parameters.
    """
    values = list(tensors.values())
    with _RefuseFrozen():
        module(*values)
    script = _script(module, values)
    for node in script.inlined_graph.nodes():
        constant = node.output().toIValue() if node.kind() == "prim::Constant" else None
        if isinstance(constant, Tensor) and constant.numel() > 1:
            raise ValueError(f"its trace would hold a constant tensor of shape {tuple(constant.shape)}")
    return lambda arguments: {"out": _run(script, arguments.values())}


def _script(module: Any, values: list[Tensor]) -> Any:
    """The TorchScript module of what `module` does with these values."""
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        traced = torch.jit.trace(module, tuple(values), check_trace=False)
    for warning in caught:
        if "Python list" in str(warning.message) or "NumPy array" in str(warning.message):
            raise ValueError(f"its code reads values: {str(warning.message).splitlines()[0]}")
    return traced


@torch.no_grad()
def _run(traced: Any, values: Iterable[Tensor]) -> Any:
    with torch.jit.optimized_execution(False):  # which would separate a product from its bias: other bits
        return traced(*values)


class _RefuseFrozen(TorchDispatchMode):
    """Checks every operation that runs inside."""

    def __torch_dispatch__(self, operation: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        _check(operation, args, kwargs or {})
        return operation(*args, **(kwargs or {}))


def _check(operation: Any, args: tuple, kwargs: Mapping[str, Any]) -> None:
    """Refuse operations whose result a trace would freeze: random draws, and values that are handed to Python."""
    tags = set(getattr(operation, "tags", ()))
    if VALUE_DEPENDENT & tags or (torch.Tag.nondeterministic_seeded in tags and _draws(operation, args, kwargs)):
        raise ValueError(f"it draws, or depends on values: {operation}")


def _draws(operation: Any, args: tuple, kwargs: Mapping[str, Any]) -> bool:
    """Whether an operation that can draw does: attention does with dropout alone."""
    arguments = {argument.name: argument.default_value for argument in operation._schema.arguments}
    arguments |= dict(zip(arguments, args)) | dict(kwargs)
    return arguments.get("dropout_p") != 0
