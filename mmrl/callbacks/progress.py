"""Rich progress with the two phases of an iteration: rollout, then learning."""

from __future__ import annotations

from typing import Any

import lightning as L
from lightning.pytorch.callbacks import RichProgressBar


class Progress(RichProgressBar):
    """Progress bars of an iteration's rollout and of its optimiser steps; prints nothing without a terminal."""

    def __init__(self) -> None:
        super().__init__(leave=False)
        self._rollout_id: Any = None

    def on_rollout_progress(self, phase: str, done: int, of: int) -> None:
        """Update the bar of the collection; the data module calls this while it collects."""
        if self.progress is None or not self.is_enabled:
            return
        if self._rollout_id is None:
            self._rollout_id = self._add_task(of, f"{phase:>8}")
        self.progress.update(self._rollout_id, total=of, completed=done, description=f"{phase:>8}", visible=True)
        self.refresh()

    def _reset_progress_bar_ids(self) -> None:
        super()._reset_progress_bar_ids()
        self._rollout_id = None  # a new display, as after fit or a second validate, has no task of the last one

    def get_metrics(self, trainer: L.Trainer, pl_module: L.LightningModule) -> dict[str, Any]:
        metrics = {k: v for k, v in trainer.callback_metrics.items() if k == "rollout/reward" or k.startswith("val/")}
        short = {
            k.split("/")[-1] if k.startswith("rollout") else k.removeprefix("val/"): f"{float(v):.3f}"
            for k, v in metrics.items()
        }
        return {k: v for k, v in short.items() if k.count("/") < 2 or k.endswith("/mean")}
