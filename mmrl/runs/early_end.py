"""Runs that end before their last iteration: whether this iteration is the last one, and why."""

from __future__ import annotations

from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Timer

ENDING = " Signaling Trainer to stop."
"""End of the reason that Lightning's EarlyStopping gives."""


def ends_early(trainer: Any) -> bool:
    """Return whether a callback or trainer.max_time ends the run with this iteration, min_epochs and min_steps met."""
    has_epochs = trainer.current_epoch + 1 >= (trainer.min_epochs or 0)
    return trainer.should_stop and has_epochs and trainer.global_step >= (trainer.min_steps or 0)


def format_early_end(trainer: L.Trainer) -> str:
    """Say after how many iterations a run ended before the last one, and why where that is known; else empty."""
    done, last = trainer.current_epoch, trainer.max_epochs
    if last in (None, -1) or done >= last:
        return ""
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
    reasons = [getattr(callback, "stopping_reason_message", None) for callback in callbacks]
    timers = [callback for callback in callbacks if isinstance(callback, Timer)]
    reasons += [
        f"its time is used up after {timer.time_elapsed():.0f} s; a larger trainer.max_time goes on"
        for timer in timers
        if (timer.time_remaining() or 1) <= 0
    ]
    reason = next((f": {text.removesuffix(ENDING)}" for text in reasons if text), "")
    return f"ended after {done} of {last} iterations{reason}"
