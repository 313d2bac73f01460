"""After a resume, apply this run's settings of optimisers, schedules and loss terms in place of the checkpoint's."""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from mmrl.objectives.objective import Objective

log = logging.getLogger(__name__)

Options = list[dict[str, Any]]
"""The settings of each parameter group of an optimiser: lr, betas, weight_decay and so on."""


def options_of(optimizer: Optimizer) -> Options:
    """The settings of each parameter group, without parameters."""
    return [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]


def apply_configuration(
    optimizer: Optimizer, configured: Options, scheduler: Any, make_scheduler: Callable[[Optimizer], Any] | None
) -> None:
    """Give a restored optimiser the settings that it would have if this configuration had been used from the start.

    A checkpoint restores learning rates, weight decay and the length of the schedule that it was made with, so that a
    finished run that is resumed with more iterations would go on at a learning rate of 0. The configured schedule is
    replayed up to the restored number of steps; where it gives what the checkpoint holds, nothing is changed.

    Args:
        optimizer: as restored.
        configured: `options_of` the optimiser before the checkpoint was restored and before a scheduler changed it.
        scheduler: of the optimiser, as restored; None for a constant learning rate.
        make_scheduler: what made it.
    """
    if scheduler is not None and (make_scheduler is None or isinstance(scheduler, ReduceLROnPlateau)):
        return  # its state depends on metrics and cannot be replayed
    fresh = _optimizer_with(configured)
    if scheduler is not None:
        assert make_scheduler is not None
        replayed = _replay(make_scheduler, fresh, scheduler.last_epoch)
        scheduler.load_state_dict(replayed.state_dict())
    changed = []
    for group, target in zip(optimizer.param_groups, fresh.param_groups):
        for name, value in target.items():
            if name in group and name != "params" and group[name] != value:
                changed.append(f"{name} {_text(group[name])} -> {_text(value)}")
                group[name] = value
    if changed:
        log.warning(
            "the checkpoint was made with another schedule or other settings of the optimiser; this run's are used: %s",
            ", ".join(dict.fromkeys(changed)),
        )


def refuse_lost_moments(optimizers: Sequence[Optimizer], restored: Sequence[int], place: str) -> None:
    """Refuse a checkpoint without the states of the optimisers, which would go on with fresh moments.

    Args:
        optimizers: of this run.
        restored: number of parameters with a state, of each optimiser of the checkpoint.
        place: of the checkpoint, for messages.
    """
    if len(restored) != len(optimizers):
        raise ValueError(
            f"{place} has the states of {len(restored)} optimisers, and this run has {len(optimizers)}; resume with "
            "the configuration of the run, or begin a new one with trainer.callbacks.warm_start.checkpoint"
        )
    if not any(restored) and any(map(_keeps_state, optimizers)):
        raise ValueError(
            f"{place}: the states of its optimisers are empty, so that training would go on with fresh moments; use "
            "another checkpoint, or begin a run with trainer.callbacks.warm_start.checkpoint"
        )


def _keeps_state(optimizer: Optimizer) -> bool:
    """Whether a class of optimisers stores something per parameter, by one step on a dummy parameter."""
    parameter = nn.Parameter(torch.zeros(1, 1))
    try:
        arguments = inspect.signature(type(optimizer)).parameters
        probe = type(optimizer)([parameter], **{k: v for k, v in optimizer.defaults.items() if k in arguments})
        parameter.grad = torch.zeros(1, 1)
        probe.step()
    except Exception:  # a class with arguments of its own
        return False
    return bool(probe.state)


def _optimizer_with(configured: Options) -> Optimizer:
    """Optimiser with one dummy parameter per group, on which a schedule is replayed."""
    groups = [{"params": [nn.Parameter(torch.zeros(()))], **options} for options in configured]
    return Optimizer(groups, dict(configured[0]))


def _replay(make_scheduler: Callable[[Optimizer], Any], optimizer: Optimizer, steps: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "scheduler.step() before optimizer.step()"
        scheduler = make_scheduler(optimizer)
        try:
            for _ in range(steps):
                scheduler.step()
        except ValueError as error:
            raise ValueError(
                f"ckpt_path: the checkpoint has made {steps} optimiser steps, more than this run's schedule has "
                f"({error}); raise trainer.max_epochs or choose scheduler=constant"
            ) from error
    return scheduler


def read_coefficients(learner: nn.Module) -> dict[str, float]:
    """Return the coefficients of the loss terms of all objectives, by objective and term."""
    return {
        f"{place}.{term}": float(objective.coefficient(term))
        for place, objective in learner.named_modules()
        if isinstance(objective, Objective)
        for term in objective.terms
    }


def apply_coefficients(learner: nn.Module, configured: dict[str, float], data: Any) -> None:
    """Set the coefficients of this run's configuration; a checkpoint restores those that it was made with.

    Args:
        learner: as restored.
        configured: `read_coefficients` before the checkpoint was restored.
        data: the data module, whose schedules set some coefficients in every iteration.
    """
    schedules = getattr(getattr(data, "scheduled", None), "schedules", {})
    changed = []
    for key, saved in read_coefficients(learner).items():
        place, _, term = key.rpartition(".")
        if saved == configured[key] or f"model.{place}.coefficients.{term}" in schedules:
            continue
        learner.get_submodule(place).coefficient(term).fill_(configured[key])
        changed.append(f"{term} {_text(saved)} -> {_text(configured[key])}")
    if changed:
        log.warning("the checkpoint has other coefficients of loss terms; this run's are used: %s", ", ".join(changed))


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
