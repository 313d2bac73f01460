"""Progress of a run: bars in a terminal, one plain line per iteration without one."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import RichProgressBar
from rich import get_console

from mmrl.data.rollout_data import RolloutData
from mmrl.evaluation.held_out import HeldOut
from mmrl.evaluation.report.checkpoint_metrics import compute_metrics
from mmrl.rollouts.base import ContinuingRollout

STAGE = "MMRL_STAGE"
"""Environment variable with the name of the warm-start stage that a process runs."""
SAMPLED = {
    "rollout/reward": "reward",
    "rollout/score/return": "return",
    "rollout/tokens_mean": "length",
    "rollout/truncated_fraction": "truncated",
    "rollout/errors": "errors",
}
"""Metrics of whole episodes and their short names in a line; the last two only where they are above 0."""
SEGMENTS = {"rollout/reward": "reward", "rollout/errors": "errors"}
"""The same of rollouts that cut episodes into segments, whose return is that of the last whole episodes."""
DIAGNOSTICS = ("kl", "clip_fraction", "accuracy")
"""Diagnostics of loss terms that a line shows."""


class Progress(RichProgressBar):
    """Progress bars of an iteration's rollout and optimiser steps in a terminal; else a plain line per iteration.

    A line has the iteration, counted from 0 as in metrics.csv, seconds without evaluation, held-out metrics where they
    were measured, and the numbers of the method: where the policy samples, mean reward and length, or the mean return
    of the last whole episodes; KL divergence, clip fraction and accuracy of the terms that have them; the terms of the
    loss where no term has a KL divergence or a clip fraction, as in imitation and preference learning.
    """

    def __init__(self) -> None:
        super().__init__(leave=False)
        self._rollout_id: Any = None
        self._plain = not get_console().is_terminal
        self._prints = True  # whether this is the first process of the run
        self._measured = False  # whether the held-out metrics are of this iteration
        self._latest: Any = None  # the evaluation that the last line could show
        self._started = self._ended = 0.0
        if self._plain:
            super().disable()

    def disable(self) -> None:
        super().disable()
        self._prints = False  # Lightning disables the bars of the other processes

    def on_rollout_progress(self, phase: str, done: int, of: int) -> None:
        """Update the bar of the collection; the data module calls this while it collects."""
        if self.progress is None or not self.is_enabled:
            return
        if self._rollout_id is None:
            self._rollout_id = self._add_task(of, f"{phase:>8}")
        self.progress.update(self._rollout_id, total=of, completed=done, description=f"{phase:>8}", visible=True)
        self.refresh()

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_train_epoch_start(trainer, pl_module)
        if self._plain and self._prints and trainer.current_epoch == 0 and (text := _format_latest(trainer)):
            print(f"{format_stage()}start: {_name_split(trainer)} {text}", flush=True)
        self._started, self._measured = time.perf_counter(), False

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)
        self._ended = time.perf_counter()

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_validation_end(trainer, pl_module)
        self._measured = True

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_train_epoch_end(trainer, pl_module)
        if not self._plain or not self._prints:
            return
        held_out = {k: float(v) for k, v in trainer.callback_metrics.items() if k.startswith("val/")}
        metrics: Any = getattr(pl_module, "iteration_metrics", {})
        last = "" if trainer.max_epochs in (None, -1) else f"/{trainer.max_epochs - 1}"
        names = select_episode_metrics(getattr(trainer, "datamodule", None), metrics)
        seconds = self._ended - self._started
        line = format_iteration(metrics, seconds, held_out if self._measured else {}, names, _name_split(trainer))
        print(f"{format_stage()}iteration {trainer.current_epoch}{last}: {line}", flush=True)
        self._latest = getattr(_get_held_out(trainer), "latest", None)

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Print an evaluation that was made after the last line, as of a run that a callback ends early."""
        latest = getattr(_get_held_out(trainer), "latest", None)
        if self._plain and self._prints and latest and latest is not self._latest:
            print(f"{format_stage()}end: {_name_split(trainer)} {_format_latest(trainer)}", flush=True)

    def _reset_progress_bar_ids(self) -> None:
        super()._reset_progress_bar_ids()
        self._rollout_id = None  # a new display, as after fit or a second validate, has no task of the last one

    def get_metrics(self, trainer: L.Trainer, pl_module: L.LightningModule) -> dict[str, Any]:
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        names = select_episode_metrics(getattr(trainer, "datamodule", None), metrics)
        numbers = {short: metrics[name] for name, short in names.items() if name in metrics}
        numbers = {short: numbers[short] for short in ("reward", "return") if short in numbers}
        numbers = numbers or select_loss_metrics(metrics)
        held_out = {name.removeprefix("val/"): value for name, value in metrics.items() if name.startswith("val/")}
        numbers |= {k: v for k, v in held_out.items() if k.count("/") < 2 or k.endswith("/mean")}
        return {name: f"{value:.3f}" for name, value in numbers.items()}


def select_episode_metrics(data: Any, metrics: Mapping[str, float]) -> dict[str, str]:
    """Return the metrics of episodes that describe the policy, and their short names.

    Episodes that the policy did not play have none but errors. A reward that is 0 for all episodes is left out, as
    where the simulator pays every decision or there are preferences alone.

    Args:
        data: the run's data module; None counts as one whose policy samples whole episodes.
        metrics: of the iteration, named as in metrics.csv.
    """
    rollout, reward = getattr(data, "rollout", None), getattr(data, "reward", None)
    if rollout is not None and not rollout.samples:
        return {"rollout/errors": "errors"}
    names = SAMPLED
    if isinstance(rollout, ContinuingRollout):
        names = {name: "return" for name in metrics if re.fullmatch(r"return_\d+", name)} | SEGMENTS
    constant = reward is not None and reward.constant
    return {name: short for name, short in names.items() if not (constant and short == "reward")}


def select_loss_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the numbers of the loss that a line shows: diagnostics, or the terms where no term is clipped.

    Args:
        metrics: of the iteration, named as in metrics.csv: train/<term>, train/<term>/<diagnostic>, and a phase's name
            before the term in learners with phases.
    """
    names = [name for name in metrics if name.startswith("train/") and name != "train/learning_rate"]
    diagnostics = [name for name in names if any(name.startswith(f"{term}/") for term in names)]
    terms = [name for name in names if name not in diagnostics]
    clipped = any(_last(name) in ("kl", "clip_fraction") for name in diagnostics)
    out: dict[str, float] = {}
    if not clipped:
        shorts = ["loss"] if len(terms) == 1 else [name.removeprefix("train/") for name in terms]
        out |= {short: metrics[name] for short, name in zip(shorts, terms)}
    for ending in DIAGNOSTICS:
        selected = [name for name in (names if clipped else diagnostics) if _last(name) == ending]
        for name in selected:
            part = "" if len(selected) == 1 else name.removeprefix("train/").removesuffix(ending)
            out[f"{part}{ending}"] = metrics[name]
    return out


def format_iteration(
    metrics: Mapping[str, float],
    seconds: float,
    held_out: Mapping[str, float],
    shown: Mapping[str, str] = SAMPLED,
    split: str = "held-out",
) -> str:
    """Format the metrics of an iteration as one line.

    Args:
        metrics: of the iteration, named as in metrics.csv.
        seconds: that it took.
        held_out: val/* metrics; empty where nothing was measured.
        shown: metrics of episodes and their short names.
        split: name of the problems that were measured.
    """
    parts = []
    for name, short in shown.items():
        value = metrics.get(name)
        if value is not None and (value or short not in ("truncated", "errors")):
            parts.append(f"{short} {value:.4g}")
    parts += [f"{name} {value:.3g}" for name, value in select_loss_metrics(metrics).items()]
    parts.append(f"{seconds:.3g} s")
    if text := _format_held_out(held_out):
        parts.append(f"{split} {text}")
    return ", ".join(parts)


def _format_held_out(metrics: Mapping[str, float]) -> str:
    """Rates with their intervals, and other means."""
    parts = []
    for name, value in metrics.items():
        short = name.removeprefix("val/")
        if name.endswith("/mean"):
            place = name.removesuffix("mean")
            ends = [metrics.get(f"{place}{end}") for end in ("lower", "upper")]
            interval = "" if None in ends else " [{:.3g}, {:.3g}]".format(*ends)
            parts.append(f"{short.removesuffix('/mean')} {value:.3g}{interval}")
        elif short.count("/") < 2:
            parts.append(f"{short} {value:.3g}")
    return ", ".join(parts)


def _get_held_out(trainer: Any) -> HeldOut | None:
    data = getattr(trainer, "datamodule", None)
    return data.evaluation if isinstance(data, RolloutData) else None


def _name_split(trainer: Any) -> str:
    """Return what the measured problems are called."""
    held_out = _get_held_out(trainer)
    return "held-out" if held_out is None else held_out.split_name


def _format_latest(trainer: Any) -> str:
    """Held-out metrics of the latest evaluation; empty without one."""
    held_out = _get_held_out(trainer)
    if held_out is None or not held_out.latest:
        return ""
    return _format_held_out(
        {
            f"val/{decode}/{evaluator}/{key}": float(value)
            for decode, evaluators in compute_metrics(held_out, held_out.latest).items()
            for evaluator, metrics in evaluators.items()
            for key, value in metrics.items()
        }
    )


def format_stage() -> str:
    """Return the name of the warm-start stage that this process runs, as the start of a line; empty outside of one."""
    return f"{os.environ[STAGE]}: " if os.environ.get(STAGE) else ""


def _last(name: str) -> str:
    return name.rpartition("/")[2]
