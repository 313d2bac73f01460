"""Bytes of an optimiser's state and of its step, measured on small real tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mmrl.commands.planning.parameters import ModuleSize

Make = Callable[[list[nn.Parameter]], Any]

WIDTH = 64
BLOCK = 256
"""Entries with one scale in the 8-bit states of bitsandbytes; smaller tensors than WIDTH^2 have states in fp32."""
SQUARES = ("exp_avg_sq", "square_avg", "max_exp_avg_sq", "sum")
"""States whose root is a temporary copy in a step."""


@dataclass(frozen=True)
class OptimizerBytes:
    """Bytes of the state of all trained parameters, and beyond it in a step."""

    name: str
    state: int
    step: int


def measure_optimizer(make: Make, sizes: list[ModuleSize], device: str) -> OptimizerBytes:
    """Measure state and step by one real step of the optimiser on small tensors of every dtype.

    State is taken to be linear in the entries of a tensor of more than 8,192; factored states (Adafactor) are smaller.

    Args:
        make: makes the optimiser of parameters.
        sizes: of the trained modules.
        device: cpu or cuda, where torch's optimisers work on all tensors at once.
    """
    state = step = shared = 0
    name = ""
    for dtype in sorted({dtype for size in sizes for _, dtype in size.trained}):
        kind = getattr(torch, dtype)
        shapes = [(shape, count) for size in sizes for (shape, other), count in size.trained.items() if other == dtype]
        probe = _probe(make, kind, (WIDTH, WIDTH))
        name, at_once = probe.name, device == "cuda" and probe.foreach
        for shape, count in shapes:
            one, common = _tensor_bytes(make, kind, shape)
            state, shared = state + one * count, max(shared, common)
        numbers = [(torch.Size(shape).numel(), count) for shape, count in shapes]
        if probe.roots and at_once:
            step += kind.itemsize * sum(entries * count for entries, count in numbers)
        elif probe.roots:
            step = max(step, 2 * kind.itemsize * max(entries for entries, _ in numbers))
    return OptimizerBytes(name, state + shared, step)


def _tensor_bytes(make: Make, dtype: torch.dtype, shape: tuple[int, ...]) -> tuple[int, int]:
    """Bytes of the state of one tensor, and of what all tensors share, such as a table of quantised values.

    A large tensor is extrapolated from two small ones of as many dimensions, whose numbers of entries leave the same
    remainder of a block, since 8-bit states have one scale for every block.
    """
    entries = torch.Size(shape).numel()
    if entries <= 2 * WIDTH**2:
        return _own_and_shared(make, dtype, shape)
    small = _like(shape)
    large = (small[0] + BLOCK, *small[1:])
    (less, shared), (more, _) = (_own_and_shared(make, dtype, each) for each in (small, large))
    numbers = [torch.Size(each).numel() for each in (small, large)]
    slope = (more - less) / (numbers[1] - numbers[0])
    return less + round(slope * (entries - numbers[0])), shared


def _like(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of a small tensor with as many dimensions, and as many entries in the last block."""
    entries = WIDTH**2 + torch.Size(shape).numel() % BLOCK
    if len(shape) < 2:
        return (entries,)
    width = WIDTH if entries % WIDTH == 0 else WIDTH - 1  # odd, so that some number of further blocks divides by it
    while entries % width:
        entries += BLOCK
    return (entries // width, width, *(1 for _ in shape[2:]))


def _own_and_shared(make: Make, dtype: torch.dtype, shape: tuple[int, ...]) -> tuple[int, int]:
    one, two = (_probe(make, dtype, *[shape] * count).bytes for count in (1, 2))
    return two - one, 2 * one - two


@dataclass(frozen=True)
class _Probe:
    name: str
    bytes: int
    roots: bool  # whether a step makes roots of its squares
    foreach: bool  # whether a CUDA step works on all tensors at once


def _probe(make: Make, dtype: torch.dtype, *shapes: tuple[int, ...]) -> _Probe:
    """Make one step on tensors of these shapes and look at the state; a tensor in several places counts once."""
    parameters = [nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in shapes]
    optimizer = make(parameters)
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    states = [(key, value) for state in optimizer.state.values() for key, value in state.items()]
    tensors = {value.data_ptr(): value for _, value in states if isinstance(value, Tensor)}
    group = optimizer.param_groups[0]
    return _Probe(
        type(optimizer).__name__,
        sum(value.nbytes for value in tensors.values()),
        not group.get("fused") and any(key in SQUARES for key, _ in states),
        "foreach" in group and group["foreach"] is not False,
    )
