"""End the training of a start while the policy is still weak, but better than one answer to all problems."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import EarlyStopping
from torch import Tensor

from mmrl.core.errors import check_fraction
from mmrl.core.types import Task
from mmrl.evaluation.held_out import HeldOut
from mmrl.evaluation.task_baselines import score_commonest_answer


class WeakStart(EarlyStopping):
    """Stop a run when its success rate reaches a threshold.

    Without a threshold of the recipe's own it is `share` of the problems, and the lower bound of the rate's interval
    has to be above the rate of the commonest answer: a policy that answers "no" to all questions of a task, most of
    which have this answer, has learned nothing yet.

    Args:
        monitor: success rate that the evaluation measures, val/<decode>/<evaluator>/mean.
        stopping_threshold: share of problems at which the run stops, whatever the commonest answer solves; None for
            `share` and the commonest answer.
        share: share of problems in [0, 1].
    """

    def __init__(self, monitor: str, stopping_threshold: float | None = None, share: float = 0.35):
        check_fraction("trainer.callbacks.stop", share=share)
        fixed = share if stopping_threshold is None else stopping_threshold
        super().__init__(monitor, patience=10**9, mode="max", stopping_threshold=fixed)
        self.above_floor = stopping_threshold is None
        self._trainer: Any = None
        self._floor: float | None = None  # success rate of the commonest answer, once it was needed

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        self._trainer = trainer

    def _evaluate_stopping_criteria(self, current: Tensor) -> tuple[bool, str | None]:
        """Lightning's criteria, without the threshold's where the rate is not above the floor."""
        stops, reason = super()._evaluate_stopping_criteria(current)
        if not (stops and self.above_floor and torch.isfinite(current)):
            return stops, reason
        place = self.monitor.removesuffix("/mean")
        lower = self._trainer.callback_metrics.get(f"{place}/lower", current)
        if self._floor is None:
            self._floor = self._measure_floor(place.rpartition("/")[2])
        return bool(lower > self._floor), reason if lower > self._floor else None

    def _measure_floor(self, evaluator: str) -> float:
        data = self._trainer.datamodule
        held_out: HeldOut = data.evaluation
        problems: Task = held_out.select_problems(data.task)
        prompts = [problems[index] for index in held_out.indices(problems)]
        scores = score_commonest_answer(problems, prompts)
        return scores.get(getattr(held_out.evaluators[evaluator], "score_name", evaluator), 0.0)
