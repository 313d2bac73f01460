"""Learner for off-policy algorithms: manual optimisation in named phases, whose order is the algorithm."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from lightning.pytorch.cli import LRSchedulerCallable
from torch import Tensor, nn

from mmrl.core.batch import Batch, strip_prefix
from mmrl.core.rng import derive_seed
from mmrl.data.checks.finite import check_loss
from mmrl.distributed import parallel
from mmrl.learners.base import BaseLearner
from mmrl.learners.low_precision import refuse_lost_updates
from mmrl.learners.phases.base import Phase, UpdateContext, part
from mmrl.learners.phases.gradient_step import GradientStep
from mmrl.learners.resume import options_of
from mmrl.policies.base import Policy


class PhasedLearner(BaseLearner):
    """Train a policy, its critics and target networks by phases, which run in their order in every update.

    A training step takes the batches of several updates, columns [updates, rows, ...], so that small networks do not
    wait for the trainer's bookkeeping.

    Args:
        policy: the actor; phases name it "policy".
        phases: the steps of an update, in order.
        models: further modules with parameters, by name: critics, Lagrange multipliers.
        target_networks: target networks, each with the model whose weights it starts with; PolyakUpdate updates them.
        scheduler: of every phase's learning rate, stepped once per step of its optimiser.
        seed: of the draws inside updates.
    """

    def __init__(
        self,
        policy: Policy,
        phases: dict[str, Phase],
        models: dict[str, nn.Module] | None = None,
        target_networks: dict[str, str] | None = None,
        scheduler: LRSchedulerCallable | None = None,
        seed: int = 0,
    ):
        super().__init__()
        self.automatic_optimization = False
        self.policy, self.phases, self.target_networks, self.seed = policy, phases, target_networks or {}, seed
        self.make_scheduler = scheduler
        self.models = nn.ModuleDict(models or {})
        self.updates = 0  # made so far
        self._check()
        self.gradient_phases = {name: phase for name, phase in phases.items() if isinstance(phase, GradientStep)}
        self.objectives = nn.ModuleDict({name: phase.objective for name, phase in self.gradient_phases.items()})
        self._update_metrics: list[dict[str, Tensor]] = []  # of this iteration's updates

    def _check(self) -> None:
        names = {"policy", *self.models, *self.target_networks}
        for name, phase in self.phases.items():
            phase.check()
            if missing := sorted(phase.models() - names):
                raise ValueError(
                    f"phase {name!r} uses {missing}, which model.models and model.target_networks do not name"
                )
        for name, source in self.target_networks.items():
            if source not in {"policy", *self.models}:
                raise ValueError(f"model.target_networks[{name!r}] starts as {source!r}; models are {sorted(names)}")

    def setup(self, stage: str) -> None:
        """Create the target networks, after callbacks have loaded the policy's initial weights and before a resume."""
        super().setup(stage)
        if parallel.shards(self.trainer):
            raise ValueError(
                "strategy=fsdp2 shards the weights of text, VLM and VLA policies; the networks of off-policy recipes "
                "are small and are called in parts. Use strategy=ddp, a copy of the weights in every process"
            )
        if parallel.sequence_group(self.trainer).size > 1:
            raise ValueError(
                "strategy.sequence_parallel divides the sequences of text policies; the networks of off-policy recipes "
                "read none. Use strategy=ddp without it"
            )
        for name, source in self.target_networks.items():
            if name not in self.models:
                self.models[name] = copy.deepcopy(self._models_by_name()[source]).requires_grad_(False)

    def _models_by_name(self) -> dict[str, nn.Module]:
        return {"policy": self.policy, **self.models}

    def configure_optimizers(self) -> Any:
        optimizers = [phase.optimizer(self._parameters_of(phase)) for phase in self.gradient_phases.values()]
        self.configured = [options_of(optimizer) for optimizer in optimizers]
        for optimizer, phase in zip(optimizers, self.gradient_phases.values()):
            refuse_lost_updates(optimizer, phase.optimizer)
        return (
            optimizers
            if self.make_scheduler is None
            else (optimizers, [self.make_scheduler(optimizer) for optimizer in optimizers])
        )

    def _parameters_of(self, phase: Phase) -> list[nn.Parameter]:
        models = self._models_by_name()
        return [parameter for name in phase.parameters for parameter in part(models, name).parameters()]

    # ---------------------------------------------------------------- updates

    def on_train_start(self) -> None:
        super().on_train_start()
        self._phase_optimizers = dict(zip(self.gradient_phases, _as_list(self.optimizers())))
        self._schedulers = dict(zip(self.gradient_phases, _as_list(self.lr_schedulers())))
        self._own_parameters = {name: self._parameters_of(phase) for name, phase in self.gradient_phases.items()}
        everything = {id(p): p for model in self._models_by_name().values() for p in model.parameters()}
        self._trainable = [p for p in everything.values() if p.requires_grad]

    def training_step(self, batches: Batch, index: int) -> None:
        for batch, rows in split_updates(batches, self.device):
            self._update(batch, rows)
        if index + 1 == self.trainer.num_training_batches and self._update_metrics:
            self._log_phase_metrics()

    def _update(self, batch: Batch, rows: ProcessRows | None) -> None:
        # the same in all processes
        generator = torch.Generator(self.device).manual_seed(derive_seed(self.seed, "update", self.updates, 0) >> 1)
        normal = partial(_normal, generator)
        if rows is not None:
            normal = partial(rows.draw, normal)
        metrics: dict[str, Tensor] = {}
        models = self._models_by_name()
        self.updates += 1
        for name, phase in self.phases.items():
            if self.updates % phase.every:
                continue
            scale = rows.scale if rows is not None and name not in self.gradient_phases else None
            log = partial(_add_metrics, metrics, name, scale)
            ctx = UpdateContext(models, normal, partial(self._minimize, name), log)
            parameters = self._own_parameters.get(name, [])
            with _TrainOnly(parameters, self._trainable) if parameters else nullcontext():
                batch = self.run_phase(name, phase, batch, ctx)
        self._update_metrics.append(metrics)

    def run_phase(self, name: str, phase: Phase, batch: Batch, ctx: UpdateContext) -> Batch:
        """Run one phase of an update; returns the batch for the following phases."""
        return phase(batch, ctx)

    def _minimize(self, name: str, loss: Tensor) -> None:
        for parameter in self._own_parameters[name]:
            parameter.grad = None
        with parallel.without_ddp(self.trainer):  # a phase trains some of the parameters
            self.manual_backward(loss)
        parallel.average_gradients(self._own_parameters[name])
        self._step(name)

    def _step(self, name: str) -> None:
        optimizer, max_norm = self._phase_optimizers[name], self.gradient_phases[name].max_grad_norm
        if max_norm is not None:
            self.clip_gradients(optimizer, gradient_clip_val=max_norm, gradient_clip_algorithm="norm")
        self.step_optimizer(optimizer)
        if name in self._schedulers:
            self._schedulers[name].step()

    def step_optimizer(self, optimizer: Any) -> None:
        """Take the step of one of Lightning's optimisers."""
        optimizer.step()

    def _log_phase_metrics(self) -> None:
        """Report means over the updates in which a phase ran, once per iteration."""
        metrics: dict[str, list[Tensor]] = {}
        for update in self._update_metrics:
            for name, value in update.items():
                metrics.setdefault(name, []).append(value)
        self._update_metrics.clear()
        means = self.mean_over_ranks({name: torch.stack(values).mean() for name, values in metrics.items()})
        for name, phase in self.gradient_phases.items():
            sums = strip_prefix(name, means)
            means = {key: value for key, value in means.items() if not key.startswith(f"{name}/")}
            means |= {f"{name}/{key}": value for key, value in phase.objective.average(sums).items()}
        check_loss([means], self.trainer)
        self.report({f"train/{name}": float(value) for name, value in means.items()})

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint["updates"] = self.updates

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        self.updates = checkpoint["updates"]


class _TrainOnly:
    """Context in which of all trainable parameters only some require gradients."""

    def __init__(self, some: list[nn.Parameter], everything: list[nn.Parameter]):
        mine = {id(p) for p in some}
        self.others = [p for p in everything if id(p) not in mine]

    def __enter__(self) -> None:
        for parameter in self.others:
            parameter.requires_grad = False

    def __exit__(self, *_: Any) -> None:
        for parameter in self.others:
            parameter.requires_grad = True


def _as_list(items: Any) -> list[Any]:
    """Lightning's optimisers or schedulers as a list: it gives a list, a single one, or None."""
    return items if isinstance(items, list) else [] if items is None else [items]


def _normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, device=generator.device)


def _add_metrics(
    metrics: dict[str, Tensor], phase: str, scale: Callable[[Tensor], Tensor] | None, values: Mapping[str, Tensor]
) -> None:
    metrics.update({f"{phase}/{name}": value if scale is None else scale(value) for name, value in values.items()})


@dataclass(frozen=True)
class ProcessRows:
    """This process's rows of a batch. A process without rows has one of loss weight 0, so that it takes part.

    Args:
        count: number of rows of this process.
        total: number of rows of the batch, over all processes.
        place: [max(count, 1)] place of each row in the batch.
        processes: number of processes.
    """

    count: int
    total: int
    place: Tensor
    processes: int

    def draw(self, normal: Callable[..., Tensor], rows: int, *shape: int) -> Tensor:
        """Draw what one process would draw for all rows of the batch, and return this process's part."""
        return normal(self.total, *shape)[self.place]

    def scale(self, mean: Tensor) -> Tensor:
        """Scale a mean over this process's rows, so that the mean over processes is that over all rows."""
        return mean * (self.count * self.processes / self.total)


def split_updates(batches: Batch, device: torch.device) -> Iterator[tuple[Batch, ProcessRows | None]]:
    """Yield the batch of each update, columns [rows, ...]; and the rows of this process, None in a run of one process.

    Collective.

    Args:
        batches: columns [updates, rows, ...]. The column `place` of several processes is -1 in rows that fill up an
            update.
        device: where tensors are for communication.
    """
    if "place" not in batches:
        for number in range(batches.rows):
            yield Batch({name: column[number] for name, column in batches.items()}), None
        return
    counts = (batches["place"] >= 0).sum(1)
    pairs = zip(counts.tolist(), parallel.total(counts, device).tolist())
    for number, (count, total) in enumerate(pairs):
        batch = Batch({name: column[number, : max(count, 1)] for name, column in batches.items()})
        yield batch, ProcessRows(count, total, batch["place"].clamp(min=0), parallel.rank_and_size()[1])
