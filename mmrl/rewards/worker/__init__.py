"""Worker processes that call a trusted Python function within a time limit."""

from mmrl.rewards.worker.pool import CallRaised, CallTimedOut, WorkerDied, WorkerError, WorkerPool

__all__ = ["CallRaised", "CallTimedOut", "WorkerDied", "WorkerError", "WorkerPool"]
