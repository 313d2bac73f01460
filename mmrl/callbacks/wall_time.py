"""Log the time of each iteration and its peak memory."""

from __future__ import annotations

import resource
import sys
import time
from typing import Any

import lightning as L
import torch


class WallTime(L.Callback):
    """Log the seconds of each iteration and of its learning, and the peak memory; other phases log their own time.

    time/iteration is from the first prompt to the last optimiser step, without held-out measurements and
    checkpoints. time/learn is forward, backward and step of every micro-batch, until the device has finished.
    peak_gib is the most memory that the iteration held on a CUDA device; without one, that the process ever held.
    """

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if pl_module.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(pl_module.device)
        self._epoch = time.perf_counter()
        self._learning = 0.0

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._batch = time.perf_counter()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx + 1 == trainer.num_training_batches and pl_module.device.type == "cuda":
            torch.cuda.synchronize(pl_module.device)
        now = time.perf_counter()
        self._learning += now - self._batch
        self._iteration = now - self._epoch

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        spent = {"time/learn": self._learning, "time/iteration": self._iteration}
        spent["peak_gib"] = peak_gib(pl_module.device)
        pl_module.report(spent)  # type: ignore[operator]  # of a `BaseLearner`


def peak_gib(device: torch.device) -> float:
    """Return the peak memory: of the accelerator since its statistics were reset, else of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30
