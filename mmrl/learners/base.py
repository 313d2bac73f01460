"""BaseLearner: metrics, checkpoints and resume that all learners share."""

from __future__ import annotations

import logging
from typing import Any

import lightning as L
import torch

from mmrl import parallel
from mmrl.data.checks.finite import check_weights
from mmrl.data.checks.processes import check_processes
from mmrl.learners.schedules import Options, apply_configuration, highest_learning_rate
from mmrl.policies.base import Policy
from mmrl.policies.processor import refuse_other
from mmrl.policies.weights import check_fits, checkpoint_weights

log = logging.getLogger(__name__)


class BaseLearner(L.LightningModule):
    """Base class of learners: one row of metrics per iteration, and the policy's contract in every checkpoint.

    The x axis of all metrics is the iteration, not the optimiser step.
    """

    policy: Policy
    make_scheduler: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.configured: list[Options] = []  # settings of each optimiser, as configured
        self._highest_lr = 0.0  # of any step of this iteration
        self.metrics: dict[str, float] = {}  # of this iteration: one row of every logger

    @property
    def _data(self) -> Any:
        return getattr(self.trainer, "datamodule", None)

    def setup(self, stage: str) -> None:
        parallel.refuse_rounded_columns(self.trainer)
        if stage == "fit":
            check_processes(self.trainer)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """How the policy reads and acts travels with its weights."""
        checkpoint["policy_contract"] = self.policy.contract()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        refuse_other(checkpoint.get("policy_contract"), self.policy.contract(), "the checkpoint")
        if "state_dict" in checkpoint:  # of a sharded run it is read apart
            place = f"ckpt_path={self.trainer.ckpt_path}"
            checkpoint_weights(checkpoint, place)
            check_fits(self.state_dict(), checkpoint["state_dict"], place)

    def on_train_start(self) -> None:
        """Measure the starting policy too, so that a run holds its own before and after.

        After a resume the optimisers follow this run's configuration.
        """
        if self.trainer.ckpt_path is not None:
            schedulers = [each.scheduler for each in self.trainer.lr_scheduler_configs] or [None] * len(self.configured)
            for optimizer, configured, scheduler in zip(self.trainer.optimizers, self.configured, schedulers):
                apply_configuration(optimizer, configured, scheduler, self.make_scheduler)
        measure = getattr(self._data, "measure", None)
        metrics = measure() if measure is not None and self.trainer.current_epoch == 0 else {}
        if metrics:
            for logger in self.loggers:
                logger.log_metrics({"iterations": 0.0, **{f"val/{k}": v for k, v in metrics.items()}}, step=0)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        self._highest_lr = max(self._highest_lr, highest_learning_rate(self.trainer.optimizers))

    def mean_over_ranks(self, means: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The mean over ranks of each number, on the host."""
        if not means:
            return {}
        _, size = parallel.rank_and_size()
        values = parallel.total(torch.stack(list(means.values())).float(), self.device) / size
        return dict(zip(means, values.cpu().unbind()))

    def on_train_epoch_end(self) -> None:
        """Numbers about the iteration's episodes come ready from the data module, the same on all ranks.

        Weights that are not finite stop the run here, before a checkpoint is made of them. The numbers go past
        `self.log`, which takes half a millisecond for each of them.
        """
        check_weights(self.named_parameters(), self.trainer)
        self.metrics |= getattr(self._data, "metrics", {})
        row = {"iterations": float(self.trainer.current_epoch + 1), **self.metrics}
        self.metrics = {}
        self.show(row)
        for logger in self.loggers:
            logger.log_metrics({"epoch": self.trainer.current_epoch, **row}, step=self.trainer.global_step)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """At the end of an iteration log its highest learning rate, and warn where that is 0."""
        if batch_idx + 1 < self.trainer.num_training_batches:
            return
        self.metrics["train/learning_rate"], self._highest_lr = self._highest_lr, 0.0
        self.show(self.metrics)
        if self.metrics["train/learning_rate"] == 0:
            log.warning(
                "iteration %d: the learning rate was 0 in every step, so nothing was learned; optimizer.lr is 0 or the "
                "schedule (scheduler.*) is at its end",
                self.trainer.current_epoch,
            )

    def show(self, metrics: dict[str, float]) -> None:
        """To callbacks that watch or print."""
        self.trainer.callback_metrics.update({name: torch.tensor(value) for name, value in metrics.items()})

    def validation_step(self, metrics: dict[str, float], _: int) -> None:
        """Held-out numbers come ready from the data module's evaluators, the same on all ranks."""
        named = {f"val/{name}": float(value) for name, value in metrics.items()}
        self.log_dict({"iterations": float(self.trainer.current_epoch + 1), **named}, batch_size=1, sync_dist=False)
