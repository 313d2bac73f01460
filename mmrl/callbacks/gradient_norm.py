"""Gradient norm: log the norm of the gradient before it is clipped."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch


class GradientNorm(L.Callback):
    """Log `train/gradient_norm`, the Euclidean norm of the gradient before clipping, mean over an iteration's steps.

    It is of all trained parameters together, in units of the loss. An iteration without a step logs none, and nor do
    networks of control whose update epochs are captured (`capture: true`). Schedules can follow it.
    """

    def __init__(self) -> None:
        self._norms: list[torch.Tensor] = []  # of this iteration's steps

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._norms.clear()

    def on_before_optimizer_step(self, trainer: L.Trainer, pl_module: Any, optimizer: Any) -> None:
        norms = [p.grad.detach().float().norm() for p in pl_module.parameters() if p.grad is not None]
        self._norms.append(torch.stack(norms).norm())
        mean = torch.stack(self._norms).mean()
        pl_module.report({"train/gradient_norm": float(mean)})
