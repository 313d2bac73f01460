"""What every learner says about a run: one row of numbers an iteration, and in its checkpoints how the policy reads."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch

from mmrl import parallel
from mmrl.policies.base import Policy
from mmrl.policies.processor import refuse_other


class Reported(L.LightningModule):
    """Logs what was measured. Iterations, not optimiser steps, are the common axis."""

    policy: Policy

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[str, float] = {}  # of this iteration, from whoever has some: one row of every logger

    @property
    def _data(self) -> Any:
        return getattr(self.trainer, "datamodule", None)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """How the policy reads and acts travels with its weights."""
        checkpoint["policy_contract"] = self.policy.contract()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        refuse_other(checkpoint.get("policy_contract"), self.policy.contract(), "the checkpoint")

    def on_train_start(self) -> None:
        """Measure the starting policy too, so that a run holds its own before and after."""
        measure = getattr(self._data, "measure", None)
        metrics = measure() if measure is not None and self.trainer.current_epoch == 0 else {}
        if metrics:
            for logger in self.loggers:
                logger.log_metrics({"iterations": 0.0, **{f"val/{k}": v for k, v in metrics.items()}}, step=0)

    def shared(self, means: dict[str, torch.Tensor]) -> dict[str, float]:
        """The mean over ranks of numbers about learning, named train/..."""
        _, size = parallel.rank_and_size()
        values = parallel.total(torch.stack(list(means.values())).float(), self.device) / size
        return {f"train/{name}": value for name, value in zip(means, values.tolist())}

    def on_train_epoch_end(self) -> None:
        """Numbers about the iteration's episodes come ready from the data module, the same on all ranks.

        They go past `self.log`, which takes half a millisecond for each of them.
        """
        self.numbers |= getattr(self._data, "metrics", {})
        row = {"iterations": float(self.trainer.current_epoch + 1), **self.numbers}
        self.numbers = {}
        self.show(row)
        for logger in self.loggers:
            logger.log_metrics({"epoch": self.trainer.current_epoch, **row}, step=self.trainer.global_step)

    def show(self, numbers: dict[str, float]) -> None:
        """To callbacks that watch or print."""
        self.trainer.callback_metrics.update({name: torch.tensor(value) for name, value in numbers.items()})

    def validation_step(self, metrics: dict[str, float], _: int) -> None:
        """Held-out numbers come ready from the data module's evaluators, the same on all ranks."""
        named = {f"val/{name}": float(value) for name, value in metrics.items()}
        self.log_dict({"iterations": float(self.trainer.current_epoch + 1), **named}, batch_size=1, sync_dist=False)
