"""What a configuration says about processes, precision, rows and the engine of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from mmrl.core.errors import ConfigError

MIXED = ("bf16-mixed", "16-mixed")
SHARDED = "FSDP2"


@dataclass(frozen=True)
class Processes:
    """Training processes: one on each device."""

    device: str  # cpu or cuda
    devices: int  # of a node
    nodes: int
    strategy: str  # single, ddp or fsdp2
    shards: int  # processes over which weights, gradients and optimiser state are divided
    bucket_copies: bool  # whether DDP keeps a copy of the gradients
    precision: str
    accumulate: int
    sequence: int = 1  # processes that divide a sequence in learning and scoring passes
    no_sync: bool = False  # whether shards are made of the sum of a minibatch's gradients

    @property
    def world(self) -> int:
        return self.devices * self.nodes

    @property
    def mixed(self) -> bool:
        return self.precision in MIXED


def read_processes(trainer: Mapping[str, Any], planned_device: bool) -> Processes:
    """Read the trainer's options.

    Args:
        trainer: of the configuration, its parts as {class_path, init_args}.
        planned_device: whether an accelerator's memory was named, which need not be in this machine.
    """
    accelerator = str(trainer.get("accelerator") or "auto")
    if accelerator not in ("auto", "cpu", "cuda", "gpu"):
        raise ConfigError(f"trainer.accelerator={accelerator}: plans are made for cpu and cuda")
    cuda = accelerator in ("cuda", "gpu") or (accelerator == "auto" and (planned_device or torch.cuda.is_available()))
    devices, nodes = _count_devices(trainer.get("devices"), cuda), int(trainer.get("num_nodes") or 1)
    strategy, options = _read_strategy(trainer.get("strategy"), devices * nodes)
    shards = int(options.get("shard_size") or devices * nodes) if strategy == "fsdp2" else 1
    return Processes(
        device="cuda" if cuda else "cpu",
        devices=devices,
        nodes=nodes,
        strategy=strategy,
        shards=shards,
        bucket_copies=strategy == "ddp" and not options.get("gradient_as_bucket_view", False),
        precision=str(trainer.get("precision") or "32-true"),
        accumulate=int(trainer.get("accumulate_grad_batches") or 1),
        sequence=int(options.get("sequence_parallel") or 1),
        no_sync=bool(options.get("no_sync")) and strategy == "fsdp2",
    )


def _count_devices(devices: Any, cuda: bool) -> int:
    if isinstance(devices, list):
        return len(devices)
    text = str(devices if devices is not None else "auto")
    if text in ("auto", "-1"):
        return max(torch.cuda.device_count(), 1) if cuda else 1
    return len([part for part in text.split(",") if part]) if "," in text else int(text)


def _read_strategy(strategy: Any, world: int) -> tuple[str, Mapping[str, Any]]:
    name, options = strategy, dict[str, Any]()
    if isinstance(strategy, Mapping):
        name, options = str(strategy.get("class_path", "")).rpartition(".")[2], strategy.get("init_args") or {}
    name = str(name or "auto")
    if world == 1 and not name.startswith("deepspeed"):
        return "single", {}
    if name == SHARDED:
        return "fsdp2", options
    if name in ("auto", "DDPStrategy", "DDP") or name.startswith("ddp"):
        return "ddp", options
    raise ConfigError(
        f"trainer.strategy={name}: plans are made for one process, for copies of the weights (ddp) and for "
        "strategy=fsdp2"
    )


@dataclass(frozen=True)
class IterationRows:
    """Rows of an iteration on the rank with most of them."""

    prompts: int  # of the rank in an iteration
    group_size: int
    minibatch: int  # of all ranks that divide a sequence, which learn from each other's rows
    micro_batch: int
    group_in_micro_batch: int  # completions of one prompt in a micro-batch
    rollout: int  # completions that are decoded at the same time

    @property
    def iteration(self) -> int:
        return self.prompts * self.group_size


def count_rows(
    num_prompts: int,
    group_size: int,
    num_minibatches: int,
    accumulate: int,
    world: int,
    max_rows: int,
    rank: int = 0,
    sequence: int = 1,
) -> IterationRows:
    """Count the rows of a rank; every drawn completion is learned from, which no transform exceeds but refills.

    Args:
        max_rows: `engine.max_rows`.
        rank: prompts are dealt out to the ranks in turn.
        sequence: ranks, from this one on, that divide a sequence.
    """
    prompts = len(range(rank, num_prompts, world))
    rows = prompts * group_size
    shared = sum(len(range(other, num_prompts, world)) for other in range(rank, rank + sequence))
    minibatch = math.ceil(shared * group_size / num_minibatches)
    micro = math.ceil(minibatch / accumulate)
    # a minibatch has rows of all prompts, and a micro-batch whole prompts of a minibatch
    of_prompt = min(max(math.ceil(minibatch / max(shared, 1)), 1), group_size, max(micro, 1))
    return IterationRows(prompts, group_size, minibatch, micro, of_prompt, min(max_rows, rows))
