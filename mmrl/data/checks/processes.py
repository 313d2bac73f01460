"""Refuse runs whose environments are too few for the training processes, before training."""

from __future__ import annotations

from typing import Any

from mmrl.rollouts.base import ContinuingRollout


def check_processes(trainer: Any) -> None:
    """Raise ValueError if a process would have none of the environments that a rollout shares out."""
    size, rollout = trainer.world_size, getattr(trainer.datamodule, "rollout", None)
    if isinstance(rollout, ContinuingRollout) and rollout.num_envs < size:
        raise ValueError(
            f"rollout.num_envs={rollout.num_envs} is less than the {size} processes that share out the environments "
            f"(trainer.devices, trainer.num_nodes); use at least rollout.num_envs={size}, or fewer processes"
        )
