"""Calls, bytes and seconds of the collectives of a process, and collectives timed on their own."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

KINDS = {
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce",
    "_allgather_base_": "all_gather",
    "allgather_": "all_gather",
    "allgather_into_tensor_coalesced_": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_": "reduce_scatter",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter",
    "broadcast_": "broadcast",
    "barrier": "barrier",
}
"""Operators of torch.ops.c10d by what they do."""
BUCKET = 25 << 20
"""Bytes that DDP reduces at once."""


@dataclass
class Used:
    """Collectives of one kind in one phase."""

    calls: int = 0
    bytes: int = 0  # of the whole tensor: what is reduced, or what all ranks have together
    wait: float = 0.0  # seconds until the last rank has made the call
    transfer: float = 0.0  # seconds of the collective after that


class CountCollectives(TorchDispatchMode):
    """Count the collectives that are called inside, by phase and kind; nothing overlaps them then.

    A barrier stands before every collective, so that waiting for another rank and sending are timed apart.
    Collectives of Python objects, by which ranks exchange episodes and numbers, are among them. FSDP2's copies between
    parameters and the buffers of its collectives are of the kind "copies".
    """

    def __init__(self) -> None:
        super().__init__()
        self.phase = "start"
        self.used: dict[tuple[str, str], Used] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(each, DTensor) for each in types):
            return NotImplemented  # it calls the collectives itself, which come here then
        if func.namespace == "fsdp":
            started = time.perf_counter()
            result = func(*args, **(kwargs or {}))
            self._count("copies", args, 0.0, time.perf_counter() - started)
            return result
        kind = KINDS.get(func._schema.name.removeprefix("c10d::")) if func.namespace == "c10d" else None
        if kind is None or kind == "barrier":
            return func(*args, **(kwargs or {}))
        started = time.perf_counter()
        dist.barrier()
        together = time.perf_counter()
        result = func(*args, **(kwargs or {}))
        _wait(result, args)
        self._count(kind, args, together - started, time.perf_counter() - together)
        return result

    def _count(self, kind: str, args: Any, wait: float, transfer: float) -> None:
        used = self.used.setdefault((self.phase, kind), Used())
        used.calls += 1
        used.bytes += max(sum(leaf.nbytes for leaf in tree_leaves(each) if isinstance(leaf, Tensor)) for each in args)
        used.wait += wait
        used.transfer += transfer

    def per_iteration(self, iterations: int) -> dict[str, dict[str, dict[str, float]]]:
        """Means over the iterations, by phase and kind."""
        result: dict[str, dict[str, dict[str, float]]] = {}
        for (phase, kind), used in self.used.items():
            result.setdefault(phase, {})[kind] = {name: value / iterations for name, value in asdict(used).items()}
        return result


def _wait(result: Any, args: Any) -> None:
    for leaf in tree_leaves(result):
        if isinstance(leaf, torch.ScriptObject):
            dist.Work.unbox(leaf).wait()
    synchronize(next(leaf for leaf in tree_leaves(args) if isinstance(leaf, Tensor)).device)


def synchronize(device: torch.device) -> None:
    """Wait until the device has done its work; a CPU has."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def time_together(call: Callable[[], Any], device: torch.device, times: int = 5) -> float:
    """Return the median seconds of a call that all ranks make at the same time, without the first, which warms up."""
    seconds = []
    for _ in range(times + 1):
        dist.barrier()
        started = time.perf_counter()
        call()
        synchronize(device)
        seconds.append(time.perf_counter() - started)
    return median(seconds[1:])


def time_reductions(size: int, device: torch.device) -> dict[str, float]:
    """Return the seconds in which nothing but gradients of `size` bytes in fp32 is reduced, as DDP does and as FSDP2.

    Keys: all_reduce, all_gather, reduce_scatter; the latter two of the whole size at once.
    """
    world = dist.get_world_size()
    whole = torch.zeros(-(-size // 4 // world) * world, device=device)
    share = torch.zeros(len(whole) // world, device=device)
    return {
        "all_reduce": time_together(lambda: [dist.all_reduce(part) for part in whole.split(BUCKET // 4)], device),
        "all_gather": time_together(lambda: dist.all_gather_into_tensor(whole, share), device),
        "reduce_scatter": time_together(lambda: dist.reduce_scatter_tensor(share, whole), device),
    }
