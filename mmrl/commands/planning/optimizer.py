"""Bytes of an optimiser's state and of its step, measured on small real tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mmrl.commands.planning.parameters import ModuleSize

WIDTH = 64
SQUARES = ("exp_avg_sq", "square_avg", "max_exp_avg_sq", "sum")
"""States whose root is a temporary copy in a step."""


@dataclass(frozen=True)
class OptimizerBytes:
    """Bytes of the state of all trained parameters, and beyond it in a step."""

    name: str
    state: int
    step: int


def measure_optimizer(
    make: Callable[[list[nn.Parameter]], Any], sizes: list[ModuleSize], device: str
) -> OptimizerBytes:
    """Measure state and step by one real step of the optimiser on small tensors of every dtype.

    State is taken to be linear in the entries of a tensor; factored states (Adafactor) are smaller than that.

    Args:
        make: makes the optimiser of parameters.
        sizes: of the trained modules.
        device: cpu or cuda, where torch's optimisers work on all tensors at once.
    """
    state = step = 0
    name = ""
    for dtype in sorted({dtype for size in sizes for _, dtype in size.trained}):
        small, large = (_state_bytes(make, getattr(torch, dtype), rows) for rows in (WIDTH, 2 * WIDTH))
        name, roots, at_once = small.name, small.roots, device == "cuda" and small.foreach
        slope = (large.bytes - small.bytes) / WIDTH**2
        constant = small.bytes - slope * WIDTH**2
        shapes = [(shape, count) for size in sizes for (shape, kind), count in size.trained.items() if kind == dtype]
        numbers = [(torch.Size(shape).numel(), count) for shape, count in shapes]
        state += round(sum((slope * entries + constant) * count for entries, count in numbers))
        width = getattr(torch, dtype).itemsize
        if roots and at_once:
            step += width * sum(entries * count for entries, count in numbers)
        elif roots:
            step = max(step, 2 * width * max(entries for entries, _ in numbers))
    return OptimizerBytes(name, state, step)


@dataclass(frozen=True)
class _Probe:
    name: str
    bytes: int
    roots: bool  # whether a step makes roots of its squares
    foreach: bool  # whether a CUDA step works on all tensors at once


def _state_bytes(make: Callable[[list[nn.Parameter]], Any], dtype: torch.dtype, rows: int) -> _Probe:
    parameter = nn.Parameter(torch.zeros(rows, WIDTH, dtype=dtype))
    optimizer = make([parameter])
    parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    tensors = {key: value for key, value in optimizer.state[parameter].items() if isinstance(value, Tensor)}
    group = optimizer.param_groups[0]
    fused = bool(group.get("fused"))
    return _Probe(
        type(optimizer).__name__,
        sum(value.nbytes for value in tensors.values()),
        not fused and any(key in tensors for key in SQUARES),
        "foreach" in group and group["foreach"] is not False,
    )
