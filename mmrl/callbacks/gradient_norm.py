"""Gradient norm: log the norm of the gradient before it is clipped."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch


class GradientNorm(L.Callback):
    """Log `train/gradient_norm`, the Euclidean norm of the gradient before clipping, mean over an iteration's steps.

    It is of all parameters of the optimiser together, in units of the loss. An off-policy phase has an optimiser of its
    own and is clipped before it is measured; the mean is over the steps of all phases. An iteration without a step logs
    none, and nor do networks of control whose update epochs are captured (`capture: true`). Schedules can follow it.
    """

    def __init__(self) -> None:
        self._norms: list[torch.Tensor] = []  # of this iteration's steps

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._norms.clear()

    def on_before_optimizer_step(self, trainer: L.Trainer, pl_module: Any, optimizer: Any) -> None:
        # parameters of other optimisers still have the gradients of their last step
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        norms = [p.grad.detach().float().norm() for p in parameters if p.grad is not None]
        self._norms.append(torch.stack(norms).norm())
        mean = torch.stack(self._norms).mean()
        pl_module.report({"train/gradient_norm": float(mean)})
