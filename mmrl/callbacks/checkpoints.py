"""ModelCheckpoint callbacks that may share an interval, and that keep the state at the end of training."""

from __future__ import annotations

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint


class NamedCheckpoint(ModelCheckpoint):
    """ModelCheckpoint whose state is saved under its file name too, and which saves the newest state in the last epoch.

    Lightning identifies callbacks by interval and metric alone, and refuses two that are equal in both. A callback that
    keeps the newest state alone (save_top_k=1 without a metric) also saves in the last epoch, so that a run that is
    shorter than its interval, or that is stopped, ends with a checkpoint.
    """

    @property
    def state_key(self) -> str:
        return f"{super().state_key}/{self.filename}"

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_train_epoch_end(trainer, pl_module)
        keeps_newest = self.monitor is None and self.save_top_k == 1
        ends = trainer.should_stop or trainer.current_epoch + 1 == trainer.max_epochs
        if keeps_newest and ends and self._last_global_step_saved != trainer.global_step:
            self._save_topk_checkpoint(trainer, self._monitor_candidates(trainer))
