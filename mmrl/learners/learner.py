"""The learner for everything that minimises one scalar: Lightning's automatic optimisation does the rest."""

from __future__ import annotations

import copy
from typing import Any

import lightning as L
import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import nn

from mmrl import parallel
from mmrl.batch import Batch
from mmrl.objectives.objective import Objective
from mmrl.policies.base import Policy
from mmrl.policies.processor import refuse_other


class Learner(L.LightningModule):
    """A policy, what it minimises, and how.

    Args:
        policy: what acts and learns.
        objective: the loss over a batch of rows.
        optimizer: made from the parameters that require gradients.
        scheduler: of the learning rate, stepped once per optimiser step.
        reference: keep a frozen copy of the starting policy as `models["reference"]`, for terms that stay close to it.
    """

    def __init__(
        self,
        policy: Policy,
        objective: Objective,
        optimizer: OptimizerCallable,
        scheduler: LRSchedulerCallable | None = None,
        reference: bool = False,
    ):
        super().__init__()
        self.policy = policy
        self.objective = objective
        self.make_optimizer = optimizer
        self.make_scheduler = scheduler
        self.models = nn.ModuleDict()
        self._terms: list[dict[str, torch.Tensor]] = []  # of this iteration's micro-batches
        self.reference = reference
        self._sharded = False

    def setup(self, stage: str) -> None:
        """Copy the starting policy, after callbacks have given it its starting weights and before a resume."""
        parallel.refuse_rounded_columns(self.trainer)
        if self.reference and "reference" not in self.models:
            self.models["reference"] = copy.deepcopy(self.policy).requires_grad_(False).eval()

    def configure_model(self) -> None:
        """Shard once when Lightning's strategy brings a device mesh."""
        if self.device_mesh is not None and not self._sharded:
            parallel.shard(self.policy, self.device_mesh["data_parallel"])
            self._sharded = True

    @property
    def _data(self) -> Any:
        return getattr(self.trainer, "datamodule", None)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """How the policy reads and acts travels with its weights."""
        checkpoint["policy_contract"] = self.policy.contract()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        refuse_other(checkpoint.get("policy_contract"), self.policy.contract(), "the checkpoint")

    def configure_optimizers(self) -> Any:
        optimizer = self.make_optimizer([p for p in self.policy.parameters() if p.requires_grad])
        if self.make_scheduler is None:
            return optimizer
        scheduler = self.make_scheduler(optimizer)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_train_start(self) -> None:
        """Measure the starting policy too, so that a run holds its own before and after."""
        measure = getattr(self._data, "measure", None)
        metrics = measure() if measure is not None and self.trainer.current_epoch == 0 else {}
        if metrics:
            for logger in self.loggers:
                logger.log_metrics({"iterations": 0.0, **{f"val/{k}": v for k, v in metrics.items()}}, step=0)

    def training_step(self, batch: Batch, index: int) -> torch.Tensor:
        loss, metrics = self.objective(self.policy(batch), batch)
        self._terms.append(metrics)
        if index + 1 == self.trainer.num_training_batches:
            self._log_terms()
        return loss

    def _log_terms(self) -> None:
        """Once an iteration: logging every micro-batch takes a third of the time of a small policy."""
        # the weights already hold the number of micro-batches and ranks, so the mean over both is the window's value
        means = {f"train/{name}": torch.stack([m[name] for m in self._terms]).mean() for name in self._terms[0]}
        self._terms.clear()
        self.log_dict(means, on_step=False, on_epoch=True, sync_dist=True, batch_size=1)

    def on_train_epoch_end(self) -> None:
        """Numbers about the iteration's episodes come ready from the data module, the same on all ranks."""
        metrics = getattr(self._data, "metrics", {})
        self.log_dict({"iterations": float(self.trainer.current_epoch + 1), **metrics}, sync_dist=False)

    def validation_step(self, metrics: dict[str, float], _: int) -> None:
        """Held-out numbers come ready from the data module's evaluators, the same on all ranks."""
        named = {f"val/{name}": float(value) for name, value in metrics.items()}
        self.log_dict({"iterations": float(self.trainer.current_epoch + 1), **named}, batch_size=1, sync_dist=False)
