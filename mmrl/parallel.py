"""Distributed helpers. With one process each function is the identity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy, SingleDeviceStrategy
from torch import Tensor, nn

from mmrl.policies.base import Policy


def rank_and_size() -> tuple[int, int]:
    """Return the rank of this process and the number of processes."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def total(value: Tensor, device: torch.device | None = None) -> Tensor:
    """Sum a value over all processes; the result is on the value's device."""
    if rank_and_size()[1] == 1:
        return value
    out = value.detach().clone().to(device or value.device)
    dist.all_reduce(out)
    return out.to(value.device)


def gather(items: Sequence[Any]) -> list[Any]:
    """Gather the items of all processes, in rank order, on every process."""
    size = rank_and_size()[1]
    if size == 1:
        return list(items)
    parts: list[list[Any]] = [[] for _ in range(size)]
    dist.all_gather_object(parts, list(items))
    return [item for part in parts for item in part]


def barrier(trainer: Any, name: str) -> None:
    """Wait until every process has reached this call."""
    if trainer.world_size > 1:
        trainer.strategy.barrier(name)


def shards(trainer: Any) -> bool:
    """Whether each process saves its share of the weights, so that a checkpoint is a folder."""
    return isinstance(trainer.strategy, ModelParallelStrategy | FSDPStrategy)


def on_any(trainer: Any, condition: bool) -> bool:
    """Whether the condition holds in any process. Collective."""
    return trainer.strategy.reduce_boolean_decision(condition, all=False) if trainer.world_size > 1 else condition


def precision(trainer: Any) -> AbstractContextManager:
    """Return Lightning's precision context, so that sampling and annotation use the arithmetic of training."""
    return trainer.precision_plugin.forward_context()


def runs_on_one_cpu(trainer: Any) -> bool:
    """True for one process on a CPU, fp32 and one micro-batch per update: the optimiser may be stepped directly."""
    strategy = trainer.strategy
    alone = isinstance(strategy, SingleDeviceStrategy) and strategy.root_device.type == "cpu"
    by_norm = str(trainer.gradient_clip_algorithm or "norm") == "norm"
    return alone and by_norm and str(trainer.precision) == "32-true" and trainer.accumulate_grad_batches == 1


def mesh_sizes(trainer: Any) -> dict[str, int] | None:
    """Return the number of processes along each dimension of the strategy's device mesh; None without a mesh."""
    mesh = getattr(trainer.strategy, "device_mesh", None)
    return None if mesh is None else dict(zip(mesh.mesh_dim_names, mesh.shape))


def scales_gradients(trainer: Any) -> bool:
    """Whether gradients may be infinite: fp16, whose gradient scaler then skips the step and lowers its scale."""
    return str(trainer.precision) == "16-mixed"


def refuse_rounded_columns(trainer: Any) -> None:
    """Refuse the precisions in which Lightning rounds every column of a batch, log-probs and advantages included."""
    name = str(trainer.precision)
    if name in ("bf16-true", "16-true"):
        raise ValueError(
            f"trainer.precision={name} rounds log-probs and advantages too; use {name.split('-')[0]}-mixed, and beside "
            "it policy.dtype=bfloat16 policy.lora.r=16 if the fixed weights of a policy with adapters shall take half "
            "the memory"
        )


def use_device(device: torch.device) -> AbstractContextManager:
    """Set the current CUDA device of a thread to the learner's, since it is set per thread."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def refuse_threads(trainer: Any, part: str) -> None:
    """Refuse to sample in a thread beside the learner where both use collectives or a global default dtype."""
    if trainer.world_size > 1:
        raise ValueError(
            f"{part} samples while it learns, in one process only: with trainer.devices > 1 the collectives of the two "
            "would meet; use data.staleness=0 or trainer.devices=1"
        )
    if str(trainer.precision) == "64-true":
        raise ValueError(f"{part} cannot be used with trainer.precision=64-true, which sets the dtype of all threads")


def shard(policy: Policy, mesh: Any) -> None:
    """Shard every repeated block of the policy and then its root over the data-parallel mesh (FSDP2).

    The methods that act are registered as forward methods, so that sampling gathers the weights as training does.
    """
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    for module in policy.modules():
        if isinstance(module, nn.ModuleList):
            for block in module:
                if any(p.requires_grad for p in block.parameters()):
                    fully_shard(block, mesh=mesh)
    fully_shard(policy, mesh=mesh)
    policy.one_pass = True  # weights are gathered in every call of a block, by all processes at once
    for entry in ("act", "act_groups"):
        register_fsdp_forward_method(policy, entry)


@contextmanager
def unshard(policy: nn.Module) -> Iterator[None]:
    """Gather the weights of a sharded policy in host memory inside the context, to save them. Collective."""
    from torch.distributed.tensor import DTensor

    shards: list[tuple[nn.Module, str, Any]] = [
        (module, name, parameter)
        for module in policy.modules()
        for name, parameter in module._parameters.items()
        if isinstance(parameter, DTensor)
    ]
    full: dict[int, nn.Parameter] = {}  # tied weights stay tied
    for module, name, parameter in shards:
        if id(parameter) not in full:
            full[id(parameter)] = nn.Parameter(parameter.detach().full_tensor().cpu(), parameter.requires_grad)
        module._parameters[name] = full[id(parameter)]
    try:
        yield
    finally:
        for module, name, parameter in shards:
            module._parameters[name] = parameter
