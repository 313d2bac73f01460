"""Refuse data modules that do not work with several training processes, before training."""

from __future__ import annotations

from typing import Any


def check_processes(trainer: Any) -> None:
    """Raise ValueError for a data module of one process in several.

    A replay buffer of a process that gets no prompt stays empty.
    """
    size, data = trainer.world_size, trainer.datamodule
    if size > 1 and not data.several_processes:
        raise ValueError(
            f"{type(data).__name__} learns from the replay buffer of one process, and trainer.devices and "
            f"trainer.num_nodes ask for {size}; use trainer.devices=1 and more environments (rollout.num_envs)"
        )
