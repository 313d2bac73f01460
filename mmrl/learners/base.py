"""Base class of learners: metrics, checkpoints and resume."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import lightning as L
import torch
from torch import nn
from torch.optim import Optimizer

from mmrl.core.rng import derive_seed
from mmrl.data.checks.finite import check_weights
from mmrl.data.checks.processes import check_processes
from mmrl.data.rollout_data import RolloutData
from mmrl.distributed import parallel
from mmrl.files.weight_names import current_names
from mmrl.learners.monitors import refuse_monitors
from mmrl.learners.resume import (
    Options,
    apply_coefficients,
    apply_configuration,
    read_coefficients,
    refuse_lost_moments,
)
from mmrl.policies.base import Policy
from mmrl.policies.processor import refuse_other
from mmrl.policies.weights import check_fits, checkpoint_weights
from mmrl.runs.early_end import ends_early

log = logging.getLogger(__name__)


class BaseLearner(L.LightningModule):
    """Base class of learners: one row of metrics per iteration, and the policy's contract in every checkpoint.

    Data module, learner and callbacks hand the metrics of an iteration to `report`; the x axis of all metrics is the
    iteration, not the optimiser step.
    """

    policy: Policy
    models: nn.ModuleDict  # further models by name
    make_scheduler: Any = None
    whole_groups = False  # whether the rows of a group have to be trained on together
    takes_update_epochs = False  # whether a training step is a whole update epoch

    def __init__(self) -> None:
        super().__init__()
        self.configured: list[Options] = []  # configured settings of each optimiser
        self._coefficients: dict[str, float] = {}  # configured coefficients of the loss terms
        self._highest_lr = 0.0  # highest learning rate of this iteration
        self._restored: list[int] | None = None  # parameters with a state, of each optimiser of the checkpoint
        self._checked = False  # whether the metrics that callbacks wait for were looked for
        self._should_stop = False  # whether the run was asked to stop within this iteration
        self.iteration_metrics: dict[str, float] = {}  # metrics of this iteration

    def report(self, metrics: Mapping[str, float]) -> None:
        """Report metrics of this iteration, equal on all ranks, to loggers and callbacks.

        Callbacks find them in `trainer.callback_metrics` at once. Every logger gets one row at the end of the
        iteration, past `self.log`, which takes half a millisecond for each number.
        """
        self.iteration_metrics |= metrics
        self.trainer.callback_metrics.update({name: torch.tensor(value) for name, value in metrics.items()})

    def _log_row(self, metrics: Mapping[str, float], step: int) -> None:
        for logger in self.loggers:
            logger.log_metrics(dict(metrics), step=step)

    def setup(self, stage: str) -> None:
        parallel.refuse_strategy(self.trainer)
        parallel.refuse_rounded_columns(self.trainer)
        parallel.allow_unused_parameters(self.trainer, self.policy)
        self._coefficients = read_coefficients(self)
        if stage == "fit":
            check_processes(self.trainer)
            group = parallel.sequence_group(self.trainer)
            if group.size > 1 and not self.policy.divides_sequences:
                self.policy.refuse_division({}, group.size)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Store the policy's contract in the checkpoint."""
        checkpoint["policy_contract"] = self.policy.contract()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        refuse_other(checkpoint.get("policy_contract"), self.policy.contract(), "the checkpoint")
        states = checkpoint.get("optimizer_states") or []
        self._restored = [len(state["state"]) for state in states] if checkpoint.get("global_step") else None
        if "state_dict" in checkpoint:  # a sharded checkpoint stores weights separately
            place = f"ckpt_path={self.trainer.ckpt_path}"
            checkpoint_weights(checkpoint, place)
            checkpoint["state_dict"] = current_names(self, checkpoint["state_dict"])
            check_fits(self.state_dict(), checkpoint["state_dict"], place)

    def on_train_start(self) -> None:
        """Evaluate the initial policy, so that a run has results before and after training.

        After a resume optimisers and coefficients of the loss terms follow this run's configuration.
        """
        if self.trainer.ckpt_path is not None:
            has_learned = _has_learned(getattr(self.trainer, "datamodule", None))
            if self._restored is not None and has_learned and parallel.shards(self.trainer) is False:
                refuse_lost_moments(self.trainer.optimizers, self._restored, f"ckpt_path={self.trainer.ckpt_path}")
            apply_coefficients(self, self._coefficients, getattr(self.trainer, "datamodule", None))
            schedulers = [each.scheduler for each in self.trainer.lr_scheduler_configs] or [None] * len(self.configured)
            for optimizer, configured, scheduler in zip(self.trainer.optimizers, self.configured, schedulers):
                apply_configuration(optimizer, configured, scheduler, self.make_scheduler)
        data = getattr(self.trainer, "datamodule", None)  # absent without a data module
        metrics = data.measure() if isinstance(data, RolloutData) and self.trainer.current_epoch == 0 else {}
        refuse_monitors(self.trainer.callbacks, [f"val/{name}" for name in metrics], "val/")
        if metrics:
            self._log_row({"iterations": 0.0, **{f"val/{k}": v for k, v in metrics.items()}}, step=0)

    def on_train_epoch_start(self) -> None:
        """Let the trainer evaluate the last iteration too, where check_val_every_n_epoch does not divide max_epochs."""
        interval, last = self.trainer.check_val_every_n_epoch, self.trainer.max_epochs
        if interval is not None and last == self.trainer.current_epoch + 1:
            self.trainer.check_val_every_n_epoch = 1

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        self._seed_dropout(batch_idx)
        self._highest_lr = max(self._highest_lr, _highest_learning_rate(self.trainer.optimizers))

    def _seed_dropout(self, batch_idx: int) -> None:
        """Let the dropout of a training step draw from a key: other masks on each rank, the same after a resume."""
        seed, (rank, _) = getattr(getattr(self.trainer, "datamodule", None), "seed", 0), parallel.rank_and_size()
        torch.manual_seed(derive_seed(seed, "dropout", self.trainer.current_epoch, batch_idx, rank) >> 1)

    def mean_over_ranks(self, means: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Average each number over the ranks; the results are on the CPU."""
        if not means:
            return {}
        _, size = parallel.rank_and_size()
        values = parallel.total(torch.stack(list(means.values())).float(), self.device) / size
        return dict(zip(means, values.cpu().unbind()))

    def on_train_epoch_end(self) -> None:
        """Log the metrics of this iteration.

        Weights that are not finite stop the run here, before a checkpoint is made of them.
        """
        check_weights(self.named_parameters(), self.trainer)
        iterations = float(self.trainer.current_epoch + 1)
        self.report({"iterations": iterations})
        data = getattr(self.trainer, "datamodule", None)
        if isinstance(data, RolloutData):
            data.scheduled.observe(self.iteration_metrics)
            if data.finished and not self._was_evaluated():
                self.report(_measure_held_out(data))
        row = {"epoch": self.trainer.current_epoch, "iterations": iterations, **self.iteration_metrics}
        self._log_row(row, step=self.trainer.global_step)
        if not self._checked and self.trainer.global_step > 0:
            self._checked = True
            refuse_monitors(self.trainer.callbacks, list(self.trainer.callback_metrics))
        self.iteration_metrics = {}

    def _was_evaluated(self) -> bool:
        """Return whether this iteration is one of those that the trainer evaluates."""
        interval = self.trainer.check_val_every_n_epoch
        return interval is not None and (self.trainer.current_epoch + 1) % interval == 0

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Report the highest learning rate at the end of an iteration; warn if it is 0."""
        if batch_idx + 1 < self.trainer.num_training_batches:
            self._postpone_stop()
            return
        self.trainer.should_stop |= self._should_stop
        is_evaluated = self.trainer.check_val_every_n_epoch is not None
        if self.trainer.should_stop and is_evaluated and ends_early(self.trainer):
            self.trainer.check_val_every_n_epoch = 1  # evaluated as after the last iteration
        highest, self._highest_lr = self._highest_lr, 0.0
        self.report({"train/learning_rate": highest})
        if highest == 0:
            log.warning(
                "iteration %d: the learning rate was 0 in every step, so nothing was learned; optimizer.lr is 0 or the "
                "schedule (scheduler.*) is at its end",
                self.trainer.current_epoch,
            )

    def _postpone_stop(self) -> None:
        """Let a run that shall stop finish its iteration, as trainer.max_time asks at any step of it.

        A resumed run begins the next iteration, and would lack the steps that are left of this one.
        """
        if self.trainer.should_stop and not getattr(getattr(self.trainer, "datamodule", None), "finished", False):
            self._should_stop, self.trainer.should_stop = True, False

    def on_train_end(self) -> None:
        """Evaluate a run that a callback ended when the evaluation of its last iteration was over."""
        data = getattr(self.trainer, "datamodule", None)
        is_planned = self.trainer.enable_validation and self.trainer.check_val_every_n_epoch is not None
        if is_planned and self.trainer.should_stop and isinstance(data, RolloutData) and not data.is_measured:
            self._log_row({"iterations": float(data.iteration), **_measure_held_out(data)}, self.trainer.global_step)

    def validation_step(self, metrics: dict[str, float], _: int) -> None:
        """Report the metrics of the data module's evaluators, which are equal on all ranks."""
        values = {f"val/{name}": float(value) for name, value in metrics.items()}
        self.log_dict({"iterations": float(self.trainer.current_epoch + 1), **values}, batch_size=1, sync_dist=False)


def _highest_learning_rate(optimizers: Iterable[Optimizer]) -> float:
    """Highest current learning rate of all parameter groups."""
    return max((float(group["lr"]) for optimizer in optimizers for group in optimizer.param_groups), default=0.0)


def _measure_held_out(data: RolloutData) -> dict[str, float]:
    return {f"val/{name}": value for name, value in data.measure().items()}


def _has_learned(data: Any) -> bool:
    """Whether an iteration so far had rows to learn from; without any no optimiser has a state."""
    empty = getattr(data, "empty", None)
    return empty is None or empty.count < data.iteration
