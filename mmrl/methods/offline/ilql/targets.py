"""Polyak averaging of ILQL's target heads after every optimiser step."""

from __future__ import annotations

from typing import Any

import lightning as L

from mmrl.core.errors import check_interval
from mmrl.learners.phases.polyak_update import polyak_update


class TargetHeads(L.Callback):
    """Move the target Q heads of the policy to its Q heads: target += tau (Q - target), once per optimiser step.

    Args:
        tau: in (0, 1]; 1 copies.
    """

    def __init__(self, tau: float = 0.005):
        check_interval("TargetHeads", "(0, 1]", tau=tau)
        self.tau = tau
        self._stepped = False

    def on_fit_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        if not hasattr(pl_module.policy, "token_values"):
            raise ValueError(
                f"trainer.callbacks: TargetHeads moves target Q heads, and {type(pl_module.policy).__name__} has none; "
                "choose policy ValueGuidedPolicy, or leave the callback out"
            )

    def on_before_optimizer_step(self, trainer: L.Trainer, pl_module: Any, optimizer: Any) -> None:
        self._stepped = True  # micro-batches within a minibatch, and minibatches without rows, have no step

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, *batch: Any) -> None:
        if not self._stepped:
            return
        self._stepped = False
        values = pl_module.policy.token_values
        polyak_update(list(values.target_q.parameters()), list(values.q.parameters()), self.tau)
