"""Where the seconds of an iteration go."""

from __future__ import annotations

import resource
import sys
import time
from typing import Any

import lightning as L
import torch


class WallTime(L.Callback):
    """Logs seconds spent learning and in the whole iteration, and the peak memory; rollout and stages log their own."""

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._epoch = time.perf_counter()
        self._learning = 0.0

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._batch = time.perf_counter()

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        self._learning += time.perf_counter() - self._batch

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        seconds = time.perf_counter() - self._epoch
        pl_module.log_dict(
            {"seconds/learn": self._learning, "seconds/iteration": seconds, "peak_gib": peak_gib(pl_module.device)}
        )


def peak_gib(device: torch.device) -> float:
    """Most memory held so far: of the accelerator when there is one, else of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30
