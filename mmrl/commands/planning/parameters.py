"""Exact sizes of a module: parameters, trained parameters, bytes by dtype, and the blocks that FSDP2 shards."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True)
class ModuleSize:
    """Sizes of a module; tied parameters count once."""

    parameters: int
    trainable: int
    parameter_bytes: int
    buffer_bytes: int
    trainable_bytes: int  # gradients have the same dtype and size
    bytes_by_dtype: dict[str, int]  # of parameters
    trained: dict[tuple[tuple[int, ...], str], int]  # number of trained tensors by shape and dtype
    largest_trained: int  # bytes
    blocks: int  # repeated blocks that are sharded one by one
    largest_block: int  # bytes
    root: int  # bytes of the parameters outside these blocks

    @property
    def bytes(self) -> int:
        return self.parameter_bytes + self.buffer_bytes


def measure_module(module: nn.Module) -> ModuleSize:
    """Measure a module on any device, the meta device included."""
    parameters = list(module.parameters())
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    by_dtype: Counter[str] = Counter()
    for parameter in parameters:
        by_dtype[dtype_name(parameter)] += parameter.nbytes
    blocks = find_blocks(module)
    inside = {id(parameter) for block in blocks for parameter in block.parameters()}
    return ModuleSize(
        parameters=sum(parameter.numel() for parameter in parameters),
        trainable=sum(parameter.numel() for parameter in trained),
        parameter_bytes=sum(parameter.nbytes for parameter in parameters),
        buffer_bytes=sum(buffer.nbytes for buffer in module.buffers()),
        trainable_bytes=sum(parameter.nbytes for parameter in trained),
        bytes_by_dtype=dict(by_dtype),
        trained=dict(Counter((tuple(parameter.shape), dtype_name(parameter)) for parameter in trained)),
        largest_trained=max((parameter.nbytes for parameter in trained), default=0),
        blocks=len(blocks),
        largest_block=max((sum(parameter.nbytes for parameter in block.parameters()) for block in blocks), default=0),
        root=sum(parameter.nbytes for parameter in parameters if id(parameter) not in inside),
    )


def find_blocks(module: nn.Module) -> list[nn.Module]:
    """Find the blocks that `mmrl.distributed.parallel.shard` shards one by one: trained entries of module lists."""
    lists = [part for part in module.modules() if isinstance(part, nn.ModuleList)]
    blocks = [block for part in lists for block in part if any(p.requires_grad for p in block.parameters())]
    nested = {id(inner) for block in blocks for inner in block.modules() if inner is not block}
    return [block for block in blocks if id(block) not in nested]


def dtype_name(tensor: Tensor) -> str:
    """Name of a dtype as in configurations, such as float32."""
    return str(tensor.dtype).removeprefix("torch.")
