"""Process group in which the trainer's first process broadcasts weights to the workers of vLLM servers.

It is independent of torch's default group, which belongs to the trainer's processes, and of vLLM's own groups. This
module is imported inside vLLM too, in an environment that may lack mmrl's other dependencies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

Header = tuple[str, list[int]]  # dtype as torch names it, and shape


@dataclass(frozen=True)
class GroupAddress:
    """Where a group meets; can be written as JSON."""

    host: str  # of the store, which the first process keeps
    port: int
    name: str  # of the group: one store serves groups one after another
    size: int  # number of members
    backend: str  # gloo, or nccl
    seconds: float  # after which a member that waits for the others gives up


class WeightGroup:
    """Member of a group; members are created at the same time and wait for each other.

    Args:
        address: of the group.
        rank: of this member; rank 0 sends.
        store: of the first process; None connects to the address.
    """

    def __init__(self, address: GroupAddress, rank: int, store: dist.Store | None = None):
        timeout = timedelta(seconds=address.seconds)
        if store is None:
            store = dist.TCPStore(address.host, address.port, None, False, timeout)
        place = dist.PrefixStore(address.name, store)
        self._group: dist.ProcessGroup | dist.Backend | None
        if address.backend == "gloo":
            self._group = dist.ProcessGroupGloo(place, rank, address.size, timeout)
        elif address.backend == "nccl":
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = timeout
            self._group = dist.ProcessGroupNCCL(place, rank, address.size, options)
        else:
            raise ValueError(f"weights are broadcast by gloo or nccl, not by {address.backend!r}")
        self.backend = address.backend

    def send(self, tensors: Iterable[Tensor]) -> None:
        """Broadcast tensors; those on an accelerator are copied to the host for gloo."""
        for tensor in tensors:
            values = tensor.detach().contiguous()
            self._broadcast(values.cpu() if self.backend == "gloo" else values)

    def receive(self, headers: Mapping[str, Header], device: torch.device) -> dict[str, Tensor]:
        """Receive the tensors of a broadcast by name."""
        place = torch.device("cpu") if self.backend == "gloo" else device
        out = {}
        for name, (dtype, shape) in headers.items():
            tensor = torch.empty(shape, dtype=getattr(torch, dtype), device=place)
            self._broadcast(tensor)
            out[name] = tensor.to(device)
        return out

    def _broadcast(self, tensor: Tensor) -> None:
        if self._group is None:
            raise ConnectionError("the group of a broadcast of weights has been closed")
        if tensor.numel():
            options = dist.BroadcastOptions()
            options.rootRank = 0
            self._group.broadcast([tensor.view(-1).view(torch.uint8)], options).wait()

    def close(self) -> None:
        """Leave the group, whose connections are closed when nothing refers to it any more."""
        group, self._group = self._group, None
        if group is not None:
            group.shutdown()


def read_headers(tensors: Mapping[str, Tensor]) -> dict[str, Header]:
    """Return dtype and shape of tensors by name, as JSON values."""
    return {name: (str(t.dtype).removeprefix("torch."), list(t.shape)) for name, t in tensors.items()}


def build_empty(headers: Mapping[str, Header]) -> dict[str, Tensor]:
    """Return tensors without data, on the device "meta", with these dtypes and shapes."""
    return {n: torch.empty(shape, dtype=getattr(torch, dtype), device="meta") for n, (dtype, shape) in headers.items()}
