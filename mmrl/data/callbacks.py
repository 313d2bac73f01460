"""What Lightning callbacks can receive of a collection, beside Lightning's own hooks."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from mmrl.batch import Batch
from mmrl.data.collector import Collected
from mmrl.types import Context


@runtime_checkable
class ProgressCallback(Protocol):
    """Callback that receives the progress of a collection."""

    def on_rollout_progress(self, phase: str, done: int, of: int) -> None: ...


@runtime_checkable
class RolloutCallback(Protocol):
    """Callback that receives the episodes of an iteration and the annotated rows, before they are trained on."""

    def on_rollout_end(self, trainer: Any, collected: Collected, batch: Batch, ctx: Context) -> None: ...


def notify_rollout_end(trainer: Any, collected: Collected, batch: Batch, ctx: Context) -> None:
    """Call `on_rollout_end` of every callback of the trainer that has it."""
    for callback in trainer.callbacks:
        if isinstance(callback, RolloutCallback):
            callback.on_rollout_end(trainer, collected, batch, ctx)
