"""Sequence groups: processes that hold the same rows and divide the tokens of every sequence among them.

Token i of a sequence belongs to process i mod S, and not a contiguous piece to each: the tokens that are scored are the
last ones of a sequence, and each process computes an equal share of their logits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class SequenceGroup:
    """The processes that divide a sequence, as one of them sees them; one process alone divides nothing.

    Args:
        rank: of this process in the group.
        size: S, the number of its processes.
        process_group: of torch.
        device: where tensors are for communication; None for a CPU.
    """

    rank: int = 0
    size: int = 1
    process_group: Any = None
    device: torch.device | None = None

    @contextmanager
    def divide(self) -> Iterator[None]:
        """Let policies divide the sequences of their forward passes over the group inside the context.

        All processes of the group must call the same models with the same rows in the same order.
        """
        token = _dividing.set(self)
        try:
            yield
        finally:
            _dividing.reset(token)

    def take(self, tokens: Tensor) -> Tensor:
        """Take this process's tokens [..., L / S] of [..., L]; L must be a multiple of S."""
        return tokens if self.size == 1 else tokens.unflatten(-1, (-1, self.size))[..., self.rank]

    def exchange(self, parts: Tensor) -> Tensor:
        """Send parts[i] of [S, ...] to process i, and return the parts that the processes sent, in their order."""
        return _Exchange.apply(parts, self.process_group)

    def join(self, values: Tensor, sequences: int) -> Tensor:
        """Join numbers of each process's tokens to those of all tokens, on every process.

        The gradient of a number is the sum of those that all processes have for it.

        Args:
            values: [B * l, ...] of the l tokens that this process has of each sequence.
            sequences: B.

        Returns:
            [B * l * S, ...] in the order of the tokens.
        """
        if self.size == 1:
            return values
        parts = self.exchange(values.expand(self.size, *values.shape))
        return parts.unflatten(1, (sequences, -1)).movedim(0, 2).flatten(0, 2)

    def gather(self, item: Any) -> list[Any]:
        """Gather an object of each process, in rank order, on every process. Collective."""
        parts: list[Any] = [None] * self.size
        if self.size == 1:
            return [item]
        dist.all_gather_object(parts, item, group=self.process_group)
        return parts

    def agree(self, condition: bool) -> bool:
        """Whether the condition holds in all processes. Collective."""
        if self.size == 1:
            return condition
        flag = torch.tensor(int(condition), device=self.device)
        dist.all_reduce(flag, dist.ReduceOp.MIN, group=self.process_group)
        return bool(flag)


class _Exchange(torch.autograd.Function):
    """All-to-all along the first dimension; its gradient is the all-to-all of the gradients."""

    @staticmethod
    def forward(ctx: Any, parts: Tensor, process_group: Any) -> Tensor:
        ctx.process_group = process_group
        received = torch.empty_like(parts, memory_format=torch.contiguous_format)
        dist.all_to_all_single(received, parts.contiguous(), group=process_group)
        return received

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return _Exchange.apply(gradient, ctx.process_group), None


ALONE = SequenceGroup()
"""One process, which has all tokens of its sequences."""

_dividing: ContextVar[SequenceGroup] = ContextVar("dividing", default=ALONE)
_scoring: ContextVar[SequenceGroup] = ContextVar("scoring", default=ALONE)


def build_sequence_group(size: int, device: torch.device, timeout: timedelta | None = None) -> SequenceGroup:
    """Build the sequence groups of all processes, neighbours in rank order, and return this process's. Collective.

    Args:
        size: processes of a group.
        device: of this process.
        timeout: of collectives; None for torch's.

    Raises:
        ValueError: the size does not divide the number of processes.
    """
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    if world % size:
        raise ValueError(f"trainer.strategy.sequence_parallel={size} does not divide the {world} processes")
    if size == 1:
        return ALONE
    groups = [dist.new_group(list(range(start, start + size)), timeout=timeout) for start in range(0, world, size)]
    return SequenceGroup(rank % size, size, groups[rank // size], device)


def get_dividing_group() -> SequenceGroup:
    """Return the group whose `divide` is the present context; `ALONE` outside of one."""
    return _dividing.get()


@contextmanager
def share_scoring(group: SequenceGroup) -> Iterator[None]:
    """Let `evaluate_rows` score the rows of all processes of a group together inside the context.

    All processes of the group must call it equally often.
    """
    token = _scoring.set(group)
    try:
        yield
    finally:
        _scoring.reset(token)


def get_scoring_group(model: Any) -> SequenceGroup:
    """Return the group of `share_scoring` if it can divide the sequences of a model, else this process alone."""
    return _scoring.get() if getattr(model, "divides_sequences", False) else ALONE
