"""Learner: minimises one scalar objective with Lightning's automatic optimisation."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from typing import Any

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import nn

from mmrl.core.batch import Batch
from mmrl.core.errors import ConfigError
from mmrl.core.types import PolicyOutput
from mmrl.data.checks.finite import check_gradients, check_loss
from mmrl.distributed import parallel
from mmrl.distributed.sequence_group import ALONE
from mmrl.distributed.sharding import gather_weights
from mmrl.files.weight_names import name_remedy
from mmrl.learners.base import BaseLearner
from mmrl.learners.low_precision import refuse_lost_updates
from mmrl.learners.offload import OffloadActivations, refuse_offload
from mmrl.learners.resume import options_of
from mmrl.objectives.objective import Objective
from mmrl.policies.base import Policy, copy_policy


class Learner(BaseLearner):
    """Train a policy on one objective by Lightning's automatic optimisation.

    Args:
        policy: the policy that samples and is trained.
        objective: the loss over a batch of rows.
        optimizer: made from the parameters that require gradients.
        scheduler: of the learning rate, stepped once per optimiser step.
        reference: keep a frozen copy of the starting policy as `models["reference"]`, for terms that stay close to it.
        learning_rates: of parts of the policy that do not use the optimizer's own, by prefixes of their parameters'
            names: {value_head: 2e-3} for a critic with untrained layers on a cloned policy.
        auxiliary_models: models that start as copies of the policy and are trained with it by terms that name them,
            with their learning rates; the gradient of each is clipped by itself.
        frozen_models: further policies that are not trained, such as a teacher; terms and annotators name them.
        offload_activations: keep what the backward pass needs in host memory until it does; less memory on a GPU, more
            time.
    """

    def __init__(
        self,
        policy: Policy,
        objective: Objective,
        optimizer: OptimizerCallable,
        scheduler: LRSchedulerCallable | None = None,
        reference: bool = False,
        auxiliary_models: dict[str, float] | None = None,
        learning_rates: dict[str, float] | None = None,
        frozen_models: dict[str, Policy] | None = None,
        offload_activations: bool = False,
    ):
        super().__init__()
        self.policy = policy
        self.objective = objective
        self.make_optimizer = optimizer
        self.make_scheduler = scheduler
        self.models = nn.ModuleDict()
        self._terms: list[dict[str, torch.Tensor]] = []  # of this iteration's micro-batches
        self._minibatch: list[dict[str, torch.Tensor]] = []  # of the micro-batches since the last optimiser step
        self._minibatch_weight = 0.0  # of the loss of these micro-batches on this rank
        self._stepped = True  # whether the last minibatch had rows
        self.reference, self.auxiliary_models = reference, dict(auxiliary_models or {})
        self.learning_rates = dict(learning_rates or {})
        if "reference" in self.auxiliary_models:
            raise ValueError("model.auxiliary_models: the reference is frozen; give an auxiliary model another name")
        self.frozen_models = frozenset(frozen_models or ())
        if clash := self.frozen_models & {"reference", *self.auxiliary_models}:
            raise ValueError(f"model.frozen_models: the names {sorted(clash)} are taken by other models; choose others")
        for name, model in (frozen_models or {}).items():
            self.models[name] = model.requires_grad_(False).eval()
        self.offload_activations, self._sharded = offload_activations, False
        self._sequence_group = ALONE  # the processes that divide the sequences of a training step

    def setup(self, stage: str) -> None:
        """Copy the initial policy for reference and auxiliary models; callbacks have loaded its weights before."""
        super().setup(stage)
        self._sequence_group = parallel.sequence_group(self.trainer)
        if self.offload_activations:
            refuse_offload(parallel.device_type(self.trainer))
        if self.reference and "reference" not in self.models:
            self.models["reference"] = copy_policy(self.policy).requires_grad_(False).eval()
        for name in self.auxiliary_models:
            if name not in self.models:
                self.models[name] = copy.deepcopy(self.policy)

    def configure_model(self) -> None:
        """Shard policy, reference and all other models once if the strategy shards weights."""
        if not self._sharded:
            self._sharded = parallel.shard_models(self.trainer, (self.policy, *self.models.values()))

    def on_train_start(self) -> None:
        """Measure whether sequences can be divided over processes, if they are."""
        if self._sequence_group.size > 1:
            models = [model for model in (self.policy, *self.models.values()) if model.divides_sequences]
            with gather_weights(*models):
                for model in models:
                    model.measure_division(self._sequence_group)  # type: ignore[operator]
        super().on_train_start()

    def parameter_groups(self) -> list[Any]:
        """Trained parameters for the optimiser: a list, or groups with their own learning rates."""
        if not self.auxiliary_models and not self.learning_rates:
            return _trainable_parameters(self.policy)
        groups = [
            {"params": _trainable_parameters(self.models[name]), "lr": rate}
            for name, rate in self.auxiliary_models.items()
        ]
        return [*_parameter_groups(self.policy, self.learning_rates), *groups]

    def configure_optimizers(self) -> Any:
        groups = self.parameter_groups()
        try:
            optimizer = self.make_optimizer(groups)
        except ValueError as error:
            reason = str(error.__cause__ or error)
            remedy = ""
            if "2D" in reason:  # torch's Muon
                remedy = (
                    ". policy.lora.r=16 trains matrices alone, and optimizer._target_=timm.optim.Muon updates by AdamW "
                    "what is no matrix"
                )
            raise ConfigError(f"model.optimizer refuses the trained weights: {reason}{remedy}") from error
        self.configured = [options_of(optimizer)]
        refuse_lost_updates(optimizer, self.make_optimizer)
        if self.make_scheduler is None:
            return optimizer
        scheduler = self.make_scheduler(optimizer)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        """Clip the gradient of each model separately, so that auxiliary models do not affect the policy."""
        if not self.auxiliary_models or not gradient_clip_val or str(gradient_clip_algorithm or "norm") != "norm":
            return self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)
        for model in (self.policy, *(self.models[name] for name in self.auxiliary_models)):
            nn.utils.clip_grad_norm_(_trainable_parameters(model), gradient_clip_val)

    @property
    def whole_groups(self) -> bool:
        """Whether all rows of a group must be in one minibatch."""
        return self.objective.whole_groups

    def training_step(self, batch: Batch, index: int) -> torch.Tensor:
        loss, metrics = self.objective(self.outputs(batch), batch)
        if not loss.requires_grad:
            self._refuse_constant_loss()
        self._minibatch.append(metrics)
        return loss

    def _refuse_constant_loss(self) -> None:
        """Refuse a loss without a gradient: no term with a coefficient above 0 depends on a trained weight."""
        iteration, disabled = self.trainer.current_epoch, self.objective.disabled_terms()
        if len(disabled) == len(self.objective.terms):
            raise ValueError(
                f"iteration {iteration}: objective.coefficients of all terms, {sorted(self.objective.terms)}, are 0, "
                "so that nothing would be learned; set one above 0"
            )
        enabled = sorted(set(self.objective.terms) - set(disabled))
        raise ValueError(
            f"iteration {iteration}: the terms {enabled} depend on no trained weight, such as the entropy of a fixed "
            f"noise, and objective.coefficients of {sorted(disabled)} are 0, so that nothing would be learned; set one "
            "of these above 0"
        )

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx + 1 == self.trainer.num_training_batches:
            self.report(self._means())
        super().on_train_batch_end(outputs, batch, batch_idx)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        super().on_train_batch_start(batch, batch_idx)
        self._minibatch_weight += float(batch["loss_weights"].abs().sum())

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        """Stop before a loss or a gradient that is not finite reaches the weights."""
        check_loss(self._minibatch, self.trainer)
        if not parallel.scales_gradients(self.trainer):
            check_gradients(self.named_parameters(), self.trainer)

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
        """Take one step per minibatch; none if no rank has rows, so that momentum alone cannot change weights."""
        weight = parallel.total(torch.tensor(self._minibatch_weight), self.device)
        self._stepped = bool(weight > 0)
        if self._stepped:
            super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
            self._terms += self._minibatch
        else:
            optimizer_closure()  # all ranks run forward and backward, whatever rows they have
        optimizer.zero_grad()  # sampling and the next forward pass need the memory; Lightning waits until after it
        self._minibatch.clear()
        self._minibatch_weight = 0.0

    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        if self._stepped:
            super().lr_scheduler_step(scheduler, metric)

    def outputs(self, batch: Batch) -> PolicyOutput:
        """Run the policy on the batch, and the further forward passes that the objective's terms name."""
        offload = OffloadActivations(self.device.type) if self.offload_activations else nullcontext()
        with offload, self._sequence_group.divide():
            out = self.policy(batch)
            for name in sorted(self.objective.others()):
                out.others[name] = self._pass(name, batch)
        return out

    def _pass(self, name: str, batch: Batch) -> PolicyOutput:
        """Run one further pass: of a model, of the policy in a context, or of a model in a context (model@context)."""
        model, _, context = name.partition("@")
        if not context and model not in self.models:
            return self.policy(batch.with_context(name))
        inputs = batch.with_context(context) if context else batch
        with nullcontext() if model in self.auxiliary_models else torch.no_grad():
            return self.models[model](inputs)

    def _means(self) -> dict[str, float]:
        """Mean of the loss terms and diagnostics over this iteration's minibatches and all ranks."""
        # the weights already hold the number of micro-batches and ranks, so the mean over both is the minibatch's value
        names = self._terms[0] if self._terms else {}
        sums = {name: torch.stack([metrics[name] for metrics in self._terms]).mean() for name in names}
        self._terms.clear()
        means = self.objective.average(self.mean_over_ranks(sums))
        return {f"train/{name}": float(value) for name, value in means.items()}


def _trainable_parameters(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _parameter_groups(policy: Policy, rates: dict[str, float]) -> list[dict[str, Any]]:
    """Parameter groups of the policy: those without a learning rate of their own, then one group for each prefix."""
    parts: dict[str, list[nn.Parameter]] = {name: [] for name in ("", *rates)}
    for name, parameter in policy.named_parameters():
        if parameter.requires_grad:
            parts[max((part for part in rates if name.startswith(part)), key=len, default="")].append(parameter)
    if unmatched := [name for name in rates if not parts[name]]:
        raise ValueError(
            f"model.learning_rates: no trained parameter of {type(policy).__name__} begins with {unmatched}"
            f"{name_remedy(policy, unmatched)}"
        )
    return [{"params": parts[""]}, *({"params": parts[name], "lr": rate} for name, rate in rates.items())]
