"""Keep the activations of a forward pass in host memory until the backward pass needs them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

MIN_BYTES = 1 << 16
"""Smaller tensors stay: starting a transfer takes longer than moving them."""


class OffloadActivations(saved_tensors_hooks):
    """Context whose saved tensors are copied to host memory, and back when the backward pass reads them.

    Weights stay on the device, which has them anyway; so do small tensors. Copies go through pinned memory on the
    stream of the computation: they need no synchronisation, and the computation waits for them.
    Source: as `torch.autograd.graph.save_on_cpu`, which copies weights too.

    Args:
        device: type of the device that is relieved.
    """

    def __init__(self, device: str):
        def pack(tensor: Tensor) -> Tensor | tuple[torch.device, Tensor]:
            base = tensor if tensor._base is None else tensor._base
            if tensor.device.type != device or tensor.nbytes < MIN_BYTES or isinstance(base, nn.Parameter):
                return tensor
            return tensor.device, _copy_to_host(tensor, pinned=device == "cuda")

        def unpack(packed: Tensor | tuple[torch.device, Tensor]) -> Tensor:
            if isinstance(packed, Tensor):
                return packed
            source, host = packed
            return host.to(source, non_blocking=True)

        super().__init__(pack, unpack)


def _copy_to_host(tensor: Tensor, pinned: bool) -> Tensor:
    return torch.empty_like(tensor, device="cpu", pin_memory=pinned).copy_(tensor, non_blocking=True)


def refuse_offload(device: str) -> None:
    """Refuse to offload activations from the CPU, whose memory is the host's."""
    if device == "cpu":
        raise ValueError(
            "model.offload_activations=true moves activations from a GPU to host memory, and this run computes on the "
            "CPU, where it would save nothing; remove it, or lower the memory with policy.gradient_checkpointing=true"
        )
