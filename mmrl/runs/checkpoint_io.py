"""CheckpointIO for Lightning's Trainer: atomic writes, and reads that run no code from the file."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from lightning.fabric.plugins.io import CheckpointIO

from mmrl.runs.checkpoint_file import CheckpointError, read_checkpoint, write_checkpoint


class CheckpointFiles(CheckpointIO):
    """Lightning's CheckpointIO over `write_checkpoint` and `read_checkpoint`.

    Args:
        trust: also load pickled objects, which can run any code that the file holds.
    """

    def __init__(self, trust: bool = False):
        self.trust = trust

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        if "://" in str(path):
            raise CheckpointError(f"{path}: checkpoints can only be written to local folders; mount the storage")
        write_checkpoint(checkpoint, path)

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """Read a checkpoint; `trust` decides what is unpickled, Lightning's argument `weights_only` is ignored."""
        return read_checkpoint(path, self.trust)

    def remove_checkpoint(self, path: Any) -> None:
        """Remove a file, or the folder that a sharded run wrote; only what is called .ckpt, which a run may remove."""
        if not str(path).endswith(".ckpt"):
            raise CheckpointError(f"{path} is no checkpoint, and it is not removed; use another checkpoint to resume")
        if Path(path).is_dir():
            shutil.rmtree(path)
        else:
            Path(path).unlink(missing_ok=True)
