"""CapturedLearner: the learner of one objective with captured updates, for small policies on a CPU."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch
from torch import Tensor

from mmrl.capture.flat import FlatParameters
from mmrl.capture.flat_output import flatten_output, join_outputs, unflatten_output
from mmrl.capture.graph import CapturedGraph
from mmrl.capture.stepping import disable_checks, step
from mmrl.core.batch import Batch, add_prefix, strip_prefix
from mmrl.core.types import PolicyOutput
from mmrl.data.checks.finite import check_loss
from mmrl.data.minibatches import UpdateEpoch
from mmrl.distributed import parallel
from mmrl.learners.base import BaseLearner
from mmrl.learners.learner import Learner
from mmrl.policies.base import Policy


class CapturedLearner(Learner):
    """Take a whole update epoch in one of Lightning's steps, with the updates that `Learner` makes in it.

    For small policies, whose updates take less time than what Lightning does around each; callbacks then see update
    epochs. All parameters are one vector, for optimisers such as Adam that treat elements alike; its norm, by which
    gradients are clipped, is rounded in another way than `Learner`'s. The operations of an update are captured and
    replayed where that gives the same bits. Other policies, and runs with several processes, accumulated gradients, an
    accelerator or further models, learn as `Learner` does.
    """

    flat: FlatParameters

    def setup(self, stage: str) -> None:
        super().setup(stage)
        # who encodes whole batches makes the same number of choices in every context: all minibatches have one shape
        alike = type(self.policy).encode_batch is not Policy.encode_batch
        further = self.auxiliary_models or self.frozen_models
        plain = not further and not self.learning_rates and parallel.runs_on_one_cpu(self.trainer)
        self.automatic_optimization = not (stage == "fit" and alike and plain)
        self._graph = CapturedGraph("an update")

    def configure_callbacks(self) -> list[L.Callback]:
        """None. Asked before Lightning checks the trainer's options, which are those of automatic optimisation."""
        self.automatic_optimization = True
        return []

    @property
    def takes_update_epochs(self) -> bool:
        """Whether a training step is a whole update epoch, in this run."""
        return not self.automatic_optimization

    def parameter_groups(self) -> list[Any]:
        groups = super().parameter_groups()
        if not self.takes_update_epochs:
            return groups
        self.flat = FlatParameters(groups)
        return [self.flat.vector]

    def configure_optimizers(self) -> Any:
        configuration = super().configure_optimizers()
        if parallel.runs_on_one_cpu(self.trainer):
            disable_checks(configuration["optimizer"] if isinstance(configuration, dict) else configuration)
        return configuration

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if self.takes_update_epochs:
            BaseLearner.on_train_batch_start(self, batch, batch_idx)
        else:
            super().on_train_batch_start(batch, batch_idx)

    def training_step(self, batch: Any, index: int) -> Any:
        return self._update_epoch(batch) if self.takes_update_epochs else super().training_step(batch, index)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx + 1 == self.trainer.num_training_batches:
            self._graph.revalidate()  # an iteration's first minibatch is computed by its own code too
        super().on_train_batch_end(outputs, batch, batch_idx)

    def _update_epoch(self, epoch: UpdateEpoch) -> None:
        """Train on every minibatch in order, with the same numbers as Lightning's automatic optimisation."""
        optimizer: Any = self.optimizers(use_pl_optimizer=False)
        scheduler: Any = self.lr_schedulers()
        max_norm = self.trainer.gradient_clip_val
        terms, outs, weights = [], [], []
        self.flat.tie()
        for minibatch in epoch:
            if not minibatch["loss_weights"].any():
                continue  # no row is left: no step, and none of the schedule
            out, metrics = self._gradient(minibatch)
            terms.append(metrics)
            outs.append(out)
            weights.append(minibatch["loss_weights"])
            if max_norm is not None:
                self.flat.clip(max_norm)
            step(optimizer, self.trainer)
            if scheduler is not None:
                scheduler.step()
        if not weights:
            return
        check_loss(terms, self.trainer)
        rows = epoch.batch.with_columns(loss_weights=torch.cat(weights) / len(weights))
        diagnostics = self.objective.metrics(join_outputs(outs), rows)
        self._terms += [metrics | diagnostics for metrics in terms]

    def _gradient(self, minibatch: Batch) -> tuple[PolicyOutput, dict[str, Tensor]]:
        """Set the gradient of a minibatch's loss; the policy's output and the parts of the loss."""

        def compute(columns: dict[str, Tensor]) -> dict[str, Tensor]:
            batch = Batch(columns)
            out = self.outputs(batch)
            loss, metrics = self.objective(out, batch, with_metrics=False)
            return {
                "gradient": self.flat.gradient(loss),
                **add_prefix("term", metrics),
                **add_prefix("out", flatten_output(out)),
            }

        if all(isinstance(column, Tensor) for column in minibatch.values()):
            scheduled = getattr(getattr(self.trainer, "datamodule", None), "scheduled", None)
            constants = () if scheduled is None else scheduled.constants
            # what their code asks beside the columns
            key = (self.policy.training, *self.objective.disabled_terms(), *constants)
            tensors = self._graph(compute, minibatch, key)
        else:
            tensors = compute(minibatch)
        assert self.flat.vector.grad is not None  # since `tie`
        self.flat.vector.grad.copy_(tensors["gradient"])
        return unflatten_output(strip_prefix("out", tensors)), strip_prefix("term", tensors)
