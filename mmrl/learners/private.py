"""PrivateLearner: DP-SGD, differentially private gradients of any objective."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor, nn

from mmrl.core.batch import Batch
from mmrl.core.errors import ConfigError
from mmrl.core.rng import derive_seed
from mmrl.curricula.poisson import PoissonSampling
from mmrl.distributed import parallel
from mmrl.learners.learner import Learner
from mmrl.learners.privacy import PrivacyAccountant, PrivacyBudget
from mmrl.ops.private_gradients import clip_example, noisy_mean
from mmrl.transforms.base import StatefulTransform

log = logging.getLogger(__name__)


class PrivateLearner(Learner):
    """DP-SGD: clip the gradient of each example, add Gaussian noise to their sum, and count the privacy loss.

    An example is a problem of the task with all its rows (the completions of a prompt, the two answers of a pair). Its
    loss is the weighted mean over its own choices: the weights of `data.weighting` are scaled to the sum 1 within each
    example, so that it does not depend on other examples. An iteration is one step on a Poisson sample of the problems.
    The gradient of each example is computed by itself, one forward and backward pass after the other.
    Source: Deep Learning with Differential Privacy, 2016, algorithm 1, arXiv:1607.00133.

    Args:
        privacy: clipping, noise and budget.
        kwargs: as of Learner.
    """

    whole_groups = True

    def __init__(self, privacy: PrivacyBudget, **kwargs: Any):
        super().__init__(**kwargs)
        if self.auxiliary_models:
            raise ConfigError("model.auxiliary_models: private gradients train the policy alone; leave them out")
        self.privacy = privacy
        self.accountant = PrivacyAccountant(privacy.delta)
        self.noise_multiplier = privacy.noise_multiplier or 0.0
        self._plan: list[float] | None = None  # what a computed noise multiplier follows from
        self._sums: list[Tensor] = []  # of the clipped gradients of this step, by parameter
        self._metrics: dict[str, Tensor] = {}  # sums over the examples of this step
        self._norms: list[Tensor] = []  # of the examples of this step, before clipping

    def setup(self, stage: str) -> None:
        super().setup(stage)
        if stage == "fit":
            _refuse_processes(self.trainer)
            _refuse_mixing(self)
            self._rate = self.trainer.datamodule.num_prompts / len(self.trainer.datamodule.task)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        plan = {"noise_multiplier": self.noise_multiplier, "plan": self._plan}
        checkpoint["privacy"] = {**plan, **self.accountant.state_dict()}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        if "privacy" not in checkpoint:
            raise ConfigError(
                f"ckpt_path={self.trainer.ckpt_path} was trained without private gradients, so that what it spent is "
                "unknown; start from public weights (policy.path) or resume with model=learner"
            )
        state = checkpoint["privacy"]
        self.accountant.load_state_dict(state)
        if self.privacy.noise_multiplier is None:
            self.noise_multiplier, self._plan = state["noise_multiplier"], state["plan"]

    def on_train_start(self) -> None:
        if self.privacy.noise_multiplier is None:
            self._calibrate()
        super().on_train_start()

    def _calibrate(self) -> None:
        """Compute the noise multiplier for the iterations that are left, unless the checkpoint has it."""
        last, target = self.trainer.max_epochs, self.privacy.target_epsilon
        if last in (None, -1):
            raise ConfigError("model.privacy.noise_multiplier is computed from trainer.max_epochs; give one of them")
        plan = [float(last), self._rate, self.privacy.delta, target]
        if self._plan != plan and last > self.trainer.current_epoch:
            steps = last - self.trainer.current_epoch
            self.noise_multiplier, self._plan = self.accountant.calibrate(self._rate, steps, target), plan
            log.info(
                "noise multiplier %.4g: %d steps with sampling rate %.4g spend epsilon %.4g at delta %.2g",
                *(self.noise_multiplier, steps, self._rate, target, self.privacy.delta),
            )

    def on_train_epoch_start(self) -> None:
        """Refuse an iteration that would spend more than the target."""
        super().on_train_epoch_start()
        if self._is_spent():
            raise ConfigError(
                f"model.privacy.target_epsilon={self.privacy.target_epsilon:g}: iteration {self.trainer.current_epoch} "
                f"would spend epsilon {self._next_epsilon():.4g} at delta {self.privacy.delta:g}; raise "
                "model.privacy.noise_multiplier or the target, or lower data.num_prompts"
            )

    def _next_epsilon(self) -> float:
        return self.accountant.epsilon_after(self._rate, self.noise_multiplier)

    def _is_spent(self) -> bool:
        """Whether one step more would spend more than the target."""
        target = self.privacy.target_epsilon
        return target is not None and self._next_epsilon() > target

    # ---------------------------------------------------------------- one step

    def training_step(self, batch: Batch, index: int) -> Tensor:
        """Add the clipped gradients of the examples of a micro-batch to those of the step."""
        total = torch.zeros((), device=self.device)
        for group in batch["group"].unique().tolist():
            rows = batch.select((batch["group"] == group).nonzero()[:, 0])
            weight = rows["loss_weights"].abs().sum()
            if weight > 0:
                rows = rows.with_columns(loss_weights=rows["loss_weights"] / weight)
                total += self._add_example(rows)
        return total

    def _add_example(self, rows: Batch) -> Tensor:
        """Add the clipped gradient and the metrics of one example; return its loss."""
        loss, metrics = self.objective(self.outputs(rows), rows)
        if not loss.requires_grad:
            self._refuse_constant_loss()
        parameters = self._parameters_trained()
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        filled = [torch.zeros_like(p) if g is None else g for g, p in zip(gradients, parameters)]
        clipped, norm = clip_example(filled, self.privacy.clip_norm)
        self._sums = [a + b for a, b in zip(self._sums, clipped)] if self._sums else clipped
        self._norms.append(norm)
        self._metrics = {name: self._metrics.get(name, 0) + value for name, value in metrics.items()}
        return loss.detach()

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Do nothing: training_step has computed the gradient of each example."""

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        """Give each parameter the noisy mean gradient, and count the step."""
        size, std = self.trainer.datamodule.num_prompts, self.noise_multiplier * self.privacy.clip_norm
        seed = self.privacy.noise_seed if self.privacy.noise_seed is not None else self.trainer.datamodule.seed
        generator = torch.Generator().manual_seed(derive_seed("private noise", seed, self.accountant.steps) >> 1)
        parameters = self._parameters_trained()
        sums = self._sums or [torch.zeros_like(parameter, dtype=torch.float32) for parameter in parameters]
        for parameter, total in zip(parameters, sums):
            parameter.grad = noisy_mean(total, std, size, generator).to(parameter.dtype)
        self.accountant.add(self._rate, self.noise_multiplier)
        # losses are sums over the examples as the gradient is; diagnostics are divided by the summed weights
        self._minibatch.append({name: value / size for name, value in self._metrics.items()})
        super().on_before_optimizer_step(optimizer)

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
        """Take a step whatever the rows are: noise hides whether there were any."""
        self._minibatch_weight = 1.0
        super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Report what the iteration spent; stop the run if no further iteration is within the target."""
        if batch_idx + 1 == self.trainer.num_training_batches:
            norms = torch.stack(self._norms) if self._norms else torch.zeros(1)
            clipped = float((norms > self.privacy.clip_norm).float().mean())
            spent = {"epsilon": self.accountant.epsilon(), "delta": self.privacy.delta}
            noise = {"noise_multiplier": self.noise_multiplier, "clipped_fraction": clipped}
            self.report({f"privacy/{name}": value for name, value in {**spent, **noise}.items()})
            self._sums, self._norms, self._metrics = [], [], {}
            if self.trainer.current_epoch + 1 != self.trainer.max_epochs and self._is_spent():
                log.info(
                    "the run stops: epsilon %.4g, and the next iteration would exceed the target", spent["epsilon"]
                )
                self.trainer.should_stop = True
        super().on_train_batch_end(outputs, batch, batch_idx)

    def _parameters_trained(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.policy.parameters() if parameter.requires_grad]


def _refuse_processes(trainer: Any) -> None:
    """Refuse several processes, and gradients that are scaled."""
    if trainer.world_size > 1 or parallel.shards(trainer):
        raise ConfigError(
            f"model is PrivateLearner, whose noise and clipping are those of one process, and the run has "
            f"{trainer.world_size}; set trainer.devices=1 trainer.num_nodes=1 and strategy=auto"
        )
    if parallel.scales_gradients(trainer):
        raise ConfigError(
            "trainer.precision=16-mixed scales gradients, and private gradients are clipped by their "
            "size; use bf16-mixed or 32-true"
        )


def _refuse_mixing(learner: PrivateLearner) -> None:
    """Refuse parts that use examples twice, or let the gradient of one example depend on others."""
    data = learner.trainer.datamodule
    size = len(data.task)
    # what is wrong with each key; False where nothing is
    problems = {
        "data.update_epochs": data.update_epochs != 1 and "is above 1, and an example counts once; set it to 1",
        "data.num_minibatches": data.num_minibatches != 1 and "is above 1, and an iteration is one step; set it to 1",
        "data.curriculum": not isinstance(data.curriculum, PoissonSampling)
        and "does not sample as the accountant assumes; use curriculum=poisson",
        "data.num_prompts": data.num_prompts > size and f"is above the {size} problems of the task; lower it",
        "data.rows": bool(data.rows) and f"{sorted(data.rows)} may use rows of other iterations; leave them out",
        "model.privacy.delta": learner.privacy.delta * size >= 1
        and f"must be below 1 / {size}, as the task has {size} problems; lower it",
    }
    # parts that keep examples, or mix them
    for name, part in data.transforms.items():
        problems[f"data.transforms.{name}"] = (
            isinstance(part, StatefulTransform) and "keeps examples of other iterations; leave it out"
        )
    for name, part in data.annotators.items():
        mixes = getattr(part, "whiten", False) or getattr(part, "scale", None) == "batch" or bool(part.state_dict())
        problems[f"data.annotators.{name}"] = mixes and (
            "uses statistics of several examples; set its whiten=false, its scale to that of a group, or leave it out"
        )
    for name, term in learner.objective.terms.items():
        problems[f"objective.terms.{name}"] = (
            term.whole_micro_batches and "compares examples of a micro-batch; leave it out"
        )
    for key, problem in problems.items():
        if problem:
            raise ConfigError(f"private gradients (model is PrivateLearner): {key} {problem}")
