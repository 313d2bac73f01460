"""Refuse settings that do not work with several training processes, before training."""

from __future__ import annotations

from typing import Any

from mmrl import parallel

REPLICATED = (
    "train copies of the weights instead (trainer.strategy=ddp_find_unused_parameters_true), with policy.lora.r=16 or "
    "policy.gradient_checkpointing=true where memory is short"
)


def check_processes(trainer: Any) -> None:
    """Raise ValueError for combinations of several processes with a strategy, rollout or replay that do not work.

    With Lightning's defaults for `ModelParallelStrategy` the weights of one node are not sharded and gradients are not
    averaged. Sharded weights are gathered in every call of a block, by all processes at once, so that processes whose
    completions end at different tokens, or that have different numbers of rows to score, wait for each other without
    end. A replay buffer of a process that gets no prompt stays empty.
    """
    size, data = trainer.world_size, trainer.datamodule
    if size == 1:
        return
    sizes = parallel.mesh_sizes(trainer)
    if sizes is not None:
        _check_mesh(sizes, size)
        if data.samples or data.pipeline:
            raise ValueError(
                "trainer.strategy: sharded weights (FSDP2) cannot be sampled from yet, and this run samples in its "
                "rollout or its evaluation, or runs the policy in data.pipeline. Sharded training is for "
                "demonstrations (recipe=sft data.evaluation=null, for example, with data.pipeline=[]); else "
                f"{REPLICATED}"
            )
    if not data.several_processes:
        raise ValueError(
            f"{type(data).__name__} learns from the replay buffer of one process, and trainer.devices and "
            f"trainer.num_nodes ask for {size}; use trainer.devices=1 and more environments (rollout.num_envs)"
        )


def _check_mesh(sizes: dict[str, int], size: int) -> None:
    if sizes.get("tensor_parallel", 1) != 1 or sizes.get("data_parallel") != size:
        raise ValueError(
            f"trainer.strategy: ModelParallelStrategy with {sizes} does not shard the weights over the {size} "
            "processes, and tensor parallelism is not implemented; set "
            f"trainer.strategy.data_parallel_size={size} trainer.strategy.tensor_parallel_size=1"
        )
