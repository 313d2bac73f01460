"""FSDP2 as a Lightning strategy: `trainer.strategy=fsdp2` shards all weights over all processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.strategies import ModelParallelStrategy, StrategyRegistry
from torch import nn
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.constants import default_pg_timeout
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy
from torch.optim import Optimizer

from mmrl.core.errors import check_at_least
from mmrl.distributed.heap import return_freed_memory
from mmrl.distributed.sequence_group import ALONE, SequenceGroup, build_sequence_group
from mmrl.distributed.whole_state import collect_optimizer_state, load_model_state, load_optimizer_state
from mmrl.files.weight_names import current_name, name_remedy


class FSDP2(ModelParallelStrategy):
    """Shard weights, gradients and optimiser state over processes, as torch's `fully_shard` does (FSDP2).

    Lightning's own strategy shards over nodes by default; this one shards over all processes.

    Args:
        shard_size: number of processes that share one copy of the weights, for example those of one node; the weights
            are replicated over the others (HSDP), and gradients are averaged over all. None shards over all processes.
        no_sync: sum the gradients of a minibatch's micro-batches on each process and reduce their sum, instead of the
            gradients of each: less is sent, and each process holds a gradient of all trained weights.
        save_distributed_checkpoint: checkpoints are folders, a file for each process; False collects all weights on
            rank 0.
        process_group_backend: of torch; None takes that of the device.
        timeout: of collectives.
        sequence_parallel: processes that hold the same rows in learning and scoring passes and divide the tokens of
            each sequence; 1 for none.
    """

    def __init__(
        self,
        shard_size: int | None = None,
        no_sync: bool = False,
        save_distributed_checkpoint: bool = True,
        process_group_backend: str | None = None,
        timeout: timedelta | None = default_pg_timeout,
        sequence_parallel: int = 1,
    ):
        check_at_least(1, "trainer.strategy", sequence_parallel=sequence_parallel)
        if shard_size is not None and shard_size < 1:
            raise ValueError(f"trainer.strategy.shard_size must be at least 1, got {shard_size}")
        super().__init__(
            tensor_parallel_size=1,
            save_distributed_checkpoint=save_distributed_checkpoint,
            process_group_backend=process_group_backend,
            timeout=timeout,
        )
        self.shard_size, self.no_sync, self.sequence_parallel = shard_size, no_sync, sequence_parallel
        self.sequence_group: SequenceGroup = ALONE
        self._reads_file = False  # whether the checkpoint that is resumed is one file
        self.shard_mesh: DeviceMesh | None = None  # over which the weights are sharded, and replicated

    def setup_environment(self) -> None:
        self._data_parallel_size = self.num_nodes * self.num_processes
        super().setup_environment()
        if self.root_device.type == "cpu":
            return_freed_memory()
        self.shard_mesh = self._build_shard_mesh()
        self.sequence_group = build_sequence_group(self.sequence_parallel, self.root_device, self._timeout)

    def _build_shard_mesh(self) -> DeviceMesh:
        replicas, size = self.divide(self.world_size)
        if replicas == 1:
            return self.device_mesh["data_parallel"]
        return init_device_mesh(
            self.root_device.type, (replicas, size), mesh_dim_names=("data_parallel_replicate", "shard")
        )

    @contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        """Leave gradients as they are in the backward passes before the last one of a minibatch.

        Without `no_sync` they are sharded, and copies of the weights (HSDP) sum them after the last pass alone.
        """
        modules = [module for module in self.model.modules() if isinstance(module, FSDPModule)]  # type: ignore[union-attr]
        set_sync = FSDPModule.set_requires_gradient_sync if self.no_sync else FSDPModule.set_requires_all_reduce
        for module in modules:
            set_sync(module, False, recurse=False)
        try:
            yield
        finally:
            for module in modules:
                set_sync(module, True, recurse=False)

    def divide(self, total: int) -> tuple[int, int]:
        """Return the number of copies of the weights, and of the processes that share one, for so many processes."""
        size = self.shard_size or total
        if total % size:
            raise ValueError(f"trainer.strategy.shard_size={size} does not divide the {total} processes")
        return total // size, size

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Return the state to save. Collective.

        torch lets an optimiser that has made no step make one with gradients of 0, to build its state; that step is
        taken back, as bias corrections count steps.
        """
        plain = _unwrap(optimizer)
        if plain.state:
            return self._optimizer_state(optimizer)
        self._optimizer_state(optimizer)
        for moments in plain.state.values():
            if "step" in moments:
                moments["step"] = moments["step"] * 0
        state = self._optimizer_state(optimizer)
        plain.state.clear()
        return state

    def _optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        if self._save_distributed_checkpoint:
            return super().optimizer_state(optimizer)
        return collect_optimizer_state(self.model, _unwrap(optimizer))  # type: ignore[arg-type]

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        """Load a folder that any number of processes wrote, or read a file that a run of any strategy wrote."""
        path = Path(self.broadcast(checkpoint_path))
        self._reads_file = path.is_file()
        if not self._reads_file:
            refuse_old_names(self.lightning_module, path)  # type: ignore[arg-type]
            return super().load_checkpoint(path, weights_only)
        return self.checkpoint_io.load_checkpoint(path, weights_only=weights_only)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        if self._reads_file:  # the states of a folder are loaded by now
            load_model_state(self.lightning_module, checkpoint["state_dict"])  # type: ignore[arg-type]

    @property
    def lightning_restore_optimizer(self) -> bool:
        return self._reads_file

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"]):
            load_optimizer_state(_unwrap(optimizer), state)


def refuse_old_names(model: nn.Module, folder: Path) -> None:
    """Refuse a sharded checkpoint with weights under names of an earlier version, which torch reads by name."""
    prefix = "state_dict."
    if not (folder / ".metadata").is_file():
        return
    saved = FileSystemReader(folder).read_metadata().state_dict_metadata
    names = [name.removeprefix(prefix) for name in saved if name.startswith(prefix)]
    old = [name for name in names if current_name(model, name) != name]
    if old:
        raise ValueError(
            f"ckpt_path={folder}: {len(old)} of its weights have names of an earlier version"
            f"{name_remedy(model, old[:1])}; in that version resume it with "
            "strategy.save_distributed_checkpoint=false, which writes one file that this version reads"
        )


def _unwrap(optimizer: Any) -> Optimizer:
    return getattr(optimizer, "_optimizer", optimizer)


def is_fsdp2(strategy: Any) -> bool:
    """Whether a configured `trainer.strategy` is this one: its registered name, or its class."""
    name = strategy.get("class_path") if isinstance(strategy, Mapping) else strategy
    return name in ("fsdp2", f"{FSDP2.__module__}.{FSDP2.__qualname__}")


def mixed_precision(precision: str) -> MixedPrecisionPolicy:
    """Return torch's policy for a precision of Lightning: weights are gathered in it, gradients are summed in fp32."""
    dtypes = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
    if precision not in dtypes:
        return MixedPrecisionPolicy(cast_forward_inputs=False)
    return MixedPrecisionPolicy(dtypes[precision], torch.float32)


StrategyRegistry.register("fsdp2", FSDP2, description="Weights sharded over all processes by torch's fully_shard")
