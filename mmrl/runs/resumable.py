"""Refuse checkpoints that a run cannot go on from."""

from __future__ import annotations

import os
from pathlib import Path

from mmrl.core.errors import ConfigError
from mmrl.runs.checkpoint_file import CheckpointError, read_checkpoint
from mmrl.runs.checkpoint_schema import has_progress


def check_resumable(path: str, trust: bool, shards: bool) -> None:
    """Refuse, by name, a checkpoint that is not there, cannot be read, is not trusted or cannot be resumed.

    Args:
        path: `ckpt_path`.
        trust: whether pickled objects may be loaded.
        shards: whether this run's strategy shards weights.
    """
    if not os.path.exists(path):
        raise ConfigError(f"ckpt_path={path}: no such file; give a .ckpt file of a run's checkpoints folder")
    # a folder of shards
    if os.path.isdir(path):
        if not (Path(path) / ".metadata").is_file():
            raise ConfigError(f"ckpt_path={path}: a folder without a checkpoint; give a .ckpt of a checkpoints folder")
        if not shards:
            raise ConfigError(
                f"ckpt_path={path}: a folder with shards of the weights, which only strategy=fsdp2 reads, with any "
                "trainer.devices; strategy.save_distributed_checkpoint=false makes files that every strategy reads"
            )
        if not trust:
            raise ConfigError(
                f"ckpt_path={path}: a sharded checkpoint is read with pickle, which can run any code that it holds; "
                "give trust=true if you know who wrote it"
            )
        return
    # a file
    try:
        checkpoint = read_checkpoint(path, trust)
    except CheckpointError as error:
        raise ConfigError(f"ckpt_path={error}") from error
    if not trust and "loops" in checkpoint and not has_progress(checkpoint):
        raise ConfigError(f"ckpt_path={path}: its loops do not say which iteration is next; use another checkpoint")
    if missing := [name for name in ("loops", "optimizer_states", "lr_schedulers", "epoch") if name not in checkpoint]:
        raise ConfigError(
            f"ckpt_path={path} has no {', '.join(missing)}, so it cannot be resumed, only begun with: "
            f"trainer.callbacks.warm_start.checkpoint={path}"
        )
