"""The trained policy as a folder that transformers loads by itself."""

from __future__ import annotations

from pathlib import Path

import lightning as L


class Export(L.Callback):
    """Keeps the starting weights as checkpoints/start.ckpt and writes the trained policy to <run_dir>/policy.

    Args:
        run_dir: folder of the run.
    """

    def __init__(self, run_dir: str):
        self.run_dir = Path(run_dir)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.current_epoch == 0:
            trainer.save_checkpoint(self.run_dir / "checkpoints" / "start.ckpt", weights_only=True)

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.is_global_zero:
            pl_module.policy.save_pretrained(self.run_dir / "policy")
