"""Load a policy's weights in the first process alone, and send them to the processes that share them.

Eight processes on a machine would otherwise hold eight copies of a checkpoint in host memory until they are sharded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from mmrl.distributed.whole_state import shard_like

_RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID")


def is_first_process() -> bool:
    """Whether this process is rank 0, as the launcher's environment says; known before torch.distributed is set up."""
    return all(os.environ.get(rank, "0") == "0" for rank in _RANKS)


def build_without_weights(build: Callable[..., nn.Module], arguments: Mapping[str, Any]) -> nn.Module:
    """Build a module on the meta device: shapes and dtypes without memory; of a checkpoint, config.json alone is read.

    A module whose constructor reads numbers from its tensors, or that keeps tensors other than parameters and buffers,
    is built with its weights instead.
    """
    try:
        with torch.device("meta"):
            module = build(**arguments)
    except (NotImplementedError, RuntimeError):  # what torch raises for numbers of a tensor without memory
        return build(**arguments)
    return build(**arguments) if _keeps_tensors(module) else module


def has_weights(module: nn.Module) -> bool:
    """Whether the module's parameters have memory."""
    return not any(parameter.is_meta for parameter in module.parameters())


def _keeps_tensors(module: nn.Module) -> bool:
    return any(
        isinstance(value, Tensor) and value.is_meta for part in module.modules() for value in vars(part).values()
    )


def take_weights(module: nn.Module) -> dict[str, Tensor]:
    """Move a module to the meta device, and return its parameters and buffers by name, without those of shards."""
    weights = {name: tensor.detach() for name, tensor in _tensors(module) if not isinstance(tensor, DTensor)}
    empty: dict[int, Tensor] = {}  # by the tensor that it replaces, so that tied weights stay tied
    for part in module.modules():
        for tensors in (part._parameters, part._buffers):
            for name, tensor in tensors.items():
                if tensor is not None and not isinstance(tensor, DTensor):
                    tensors[name] = empty.setdefault(id(tensor), _empty_like(tensor))  # type: ignore[assignment]
    return weights


def receive_weights(module: nn.Module, weights: dict[str, Tensor], device: str) -> None:
    """Give a sharded module on the meta device memory, and the weights that the first process has. Collective.

    Args:
        module: sharded by torch's `fully_shard`, which keeps tied weights tied.
        weights: of `take_weights`; those of other processes than the first are not read. Emptied.
        device: kind of device of the module: "cpu", "cuda".
    """
    module._apply(lambda tensor: torch.empty_like(tensor, device=device) if tensor.is_meta else tensor)
    several = torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1
    first = not several or torch.distributed.get_rank() == 0
    with torch.no_grad():
        for name, target in [(name, tensor) for name, tensor in _tensors(module) if name in weights]:
            source = weights.pop(name)
            whole = (
                source.to(device).contiguous()
                if first
                else torch.empty(target.shape, dtype=target.dtype, device=device)
            )
            if several:
                torch.distributed.broadcast(whole, 0)
            target.copy_(shard_like(whole, target))


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    return chain(module.named_parameters(), module.named_buffers())


def _empty_like(tensor: Tensor) -> Tensor:
    empty = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
    return nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty
