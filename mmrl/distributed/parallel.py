"""Distributed helpers. With one process each function is the identity."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from subprocess import Popen
from typing import Any

import lightning as L
import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy, ModelParallelStrategy, SingleDeviceStrategy
from torch import Tensor, nn
from torch.distributed.constants import default_pg_timeout
from torch.nn.parallel import DistributedDataParallel

from mmrl.distributed.fsdp2 import FSDP2, mixed_precision
from mmrl.distributed.sequence_group import ALONE, SequenceGroup
from mmrl.distributed.sharding import shard
from mmrl.distributed.thread_group import ThreadGroup, current_group


def rank_and_size() -> tuple[int, int]:
    """Return the rank of this process and the number of processes."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def total(value: Tensor, device: torch.device | None = None) -> Tensor:
    """Sum a value over all processes; the result is on the value's device."""
    if rank_and_size()[1] == 1:
        return value
    if (group := current_group()) is not None:
        return group.total(value)
    out = value.detach().clone().to(device or value.device)
    dist.all_reduce(out)
    return out.to(value.device)


def gather(items: Sequence[Any]) -> list[Any]:
    """Gather the items of all processes, in rank order, on every process."""
    size = rank_and_size()[1]
    if size == 1:
        return list(items)
    if (group := current_group()) is not None:
        return group.gather(items)
    parts: list[list[Any]] = [[] for _ in range(size)]
    dist.all_gather_object(parts, list(items))
    return [item for part in parts for item in part]


CHUNK_BYTES = 2**26  # of one message


def collect_on_first(value: Tensor, device: torch.device) -> list[Tensor] | None:
    """Return on process 0 the tensors [n, ...] of all processes in host memory, in rank order, elsewhere None.

    Collective.

    Args:
        value: in host memory; n may differ between processes.
        device: where tensors are for communication.
    """
    rank, size = rank_and_size()
    lengths = gather([len(value)])
    if rank:
        for chunk in _chunks(value.contiguous()):
            dist.send(chunk.to(device), 0)
        return None
    parts = [value, *(value.new_empty(length, *value.shape[1:]) for length in lengths[1:])]
    for other in range(1, size):
        for chunk in _chunks(parts[other]):
            received = chunk.to(device)
            dist.recv(received, other)
            chunk.copy_(received)
    return parts


def _chunks(value: Tensor) -> list[Tensor]:
    """Views of a contiguous tensor's bytes, at most CHUNK_BYTES each."""
    return list(value.flatten().view(torch.uint8).split(CHUNK_BYTES)) if value.numel() else []


def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Average the gradients of these parameters over all processes, as one message. Collective.

    A parameter without a gradient has none in all processes.
    """
    size = rank_and_size()[1]
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None] if size > 1 else []
    if not gradients:
        return
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    flat /= size
    for gradient, values in zip(gradients, flat.split([gradient.numel() for gradient in gradients])):
        gradient.copy_(values.view_as(gradient))


def without_ddp(trainer: Any) -> AbstractContextManager:
    """Return a context for backward passes whose gradients DDP leaves alone, since it expects one of each parameter."""
    model = trainer.strategy.model
    return model.no_sync() if isinstance(model, DistributedDataParallel) else nullcontext()


def device_of(trainer: Any) -> torch.device:
    """Return the device of this process, where tensors are for communication."""
    return trainer.strategy.root_device


def barrier(trainer: Any, name: str) -> None:
    """Wait until every process has reached this call."""
    if trainer.world_size > 1:
        trainer.strategy.barrier(name)


def shards(trainer: Any) -> bool:
    """Whether each process holds a share of the weights."""
    return isinstance(trainer.strategy, FSDP2)


def allow_unused_parameters(trainer: Any, policy: Any) -> None:
    """Let DDP find weights without a gradient, for policies with such weights and unless the strategy forbids it.

    An image encoder has layers whose output no model reads, and rows without images do not use it at all. The indexer
    of sparse attention chooses tokens, and no gradient passes through the choice.
    """
    if isinstance(trainer.strategy, DDPStrategy) and (policy.optional_modules() or policy.leaves_weights_out):
        trainer.strategy._ddp_kwargs.setdefault("find_unused_parameters", True)


def on_any(trainer: Any, condition: bool) -> bool:
    """Whether the condition holds in any process. Collective."""
    return trainer.strategy.reduce_boolean_decision(condition, all=False) if trainer.world_size > 1 else condition


def precision(trainer: Any) -> AbstractContextManager:
    """Return Lightning's precision context, so that sampling and annotation use the arithmetic of training."""
    return trainer.precision_plugin.forward_context()


def device_type(trainer: Any) -> str:
    """Type of the device that computes, such as "cpu" or "cuda"."""
    return trainer.strategy.root_device.type


def runs_on_one_cpu(trainer: Any) -> bool:
    """True for one process on a CPU, fp32 and one micro-batch per update: the optimiser may be stepped directly."""
    strategy = trainer.strategy
    alone = isinstance(strategy, SingleDeviceStrategy) and strategy.root_device.type == "cpu"
    by_norm = str(trainer.gradient_clip_algorithm or "norm") == "norm"
    return alone and by_norm and str(trainer.precision) == "32-true" and trainer.accumulate_grad_batches == 1


def shard_models(trainer: Any, models: Iterable[nn.Module]) -> bool:
    """Shard the weights of models if the strategy shards weights; return whether it does."""
    mesh = getattr(trainer.strategy, "shard_mesh", None)
    if mesh is None:
        return False
    for model in models:
        shard(model, mesh, mixed_precision(str(trainer.precision)))  # type: ignore[arg-type]
    return True


def refuse_strategy(trainer: Any) -> None:
    """Refuse, by name, strategies that are not implemented."""
    is_supported = isinstance(trainer.strategy, SingleDeviceStrategy | DDPStrategy | FSDP2)
    if is_supported and not isinstance(trainer.strategy, DeepSpeedStrategy):  # which is a DDPStrategy of Lightning's
        return
    name = type(trainer.strategy).__name__
    reason = f"{name} is not implemented: the policy would be sampled from, or saved with, a part of its weights"
    if isinstance(trainer.strategy, ModelParallelStrategy):
        reason = f"{name} shards weights over nodes by default and does not gather them for sampling"
    raise ValueError(
        f"trainer.strategy: {reason}; use strategy=ddp (a copy of the weights in every process) or "
        "strategy=fsdp2 (weights sharded over all processes). Tensor and pipeline parallelism are not implemented"
    )


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


def thread_group(trainer: Any, stopped: threading.Event) -> ThreadGroup | None:
    """Build the process group of a thread that samples beside the learner; None for one process. Collective.

    Args:
        stopped: ends the thread's waiting when it is set.
    """
    if trainer.world_size == 1:
        return None
    return ThreadGroup(getattr(trainer.strategy, "_timeout", None) or default_pg_timeout, stopped)


def use_thread_group(group: ThreadGroup | None) -> AbstractContextManager:
    """Return a context in which the collectives of this thread go over a group of its own."""
    return nullcontext() if group is None else group.use()


def refuse_threads(trainer: Any, part: str) -> None:
    """Refuse to sample in a thread beside the learner where both use a global default dtype."""
    if str(trainer.precision) == "64-true":
        raise ValueError(f"{part} cannot be used with trainer.precision=64-true, which sets the dtype of all threads")


def divide(trainer: Any) -> tuple[int, int]:
    """Return the number of copies of the weights, and of the processes that share one. Raises where it is not whole."""
    strategy = trainer.strategy
    return strategy.divide(trainer.world_size) if isinstance(strategy, FSDP2) else (trainer.world_size, 1)


def start_processes(trainer: Any) -> list[Popen]:
    """Start the other processes of this node as `trainer.fit` does; none if a launcher such as torchrun starts them."""
    launcher = trainer.strategy.launcher
    if launcher is None:
        return []
    environment = launcher.cluster_environment
    environment.validate_settings(num_devices=trainer.num_devices, num_nodes=trainer.num_nodes)
    if environment.creates_processes_externally:
        return []
    launcher._call_children_scripts()
    return launcher.procs


def meeting_place(trainer: Any) -> tuple[str, int]:
    """Return the address and the port at which rank 0 waits for the others."""
    environment = trainer.strategy.cluster_environment
    return environment.main_address, environment.main_port


def join_group(trainer: Any, store: dist.Store, seconds: float) -> str:
    """Join the strategy's process group, through a store that exists, and build its mesh. Collective.

    Returns the backend's name.
    """
    strategy = trainer.strategy
    backend = strategy._get_process_group_backend()
    device = strategy.root_device
    dist.init_process_group(
        backend,
        store=store,
        rank=trainer.global_rank,
        world_size=trainer.world_size,
        timeout=timedelta(seconds=seconds),
        device_id=device if device.type != "cpu" else None,
    )
    strategy.connect(L.LightningModule())
    strategy.setup_environment()  # finds the group
    return backend


def process_groups(trainer: Any) -> dict[str, Any]:
    """Return the process groups of a strategy by what they do; all processes are None, as in torch."""
    mesh, group = getattr(trainer.strategy, "shard_mesh", None), sequence_group(trainer)
    divided = {} if group.size == 1 else {"ranks of a sequence": group.process_group}
    if mesh is None or mesh.ndim == 1:
        return {"all ranks": None, **divided}
    return {"all ranks": None, "ranks of a copy": mesh.get_group("shard"), "copies": mesh.get_group(0), **divided}


def sequence_group(trainer: Any) -> SequenceGroup:
    """Return the processes that divide sequences with this one; this process alone without sequence parallelism."""
    return getattr(trainer.strategy, "sequence_group", ALONE)


def root_device(trainer: Any) -> torch.device:
    """Return this process's device."""
    return trainer.strategy.root_device
