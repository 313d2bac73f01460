"""Asynchronous collection: sample the next iterations while the policy learns from this one.

With staleness s, iteration k learns from rows that the weights of version max(0, k - s) sampled (counted from where the
run was started or, without `save_versions`, resumed). That is a fixed schedule: however long sampling and learning
take, the same seed gives the same run.
"""

from __future__ import annotations

import copy
import threading
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from mmrl.core.errors import ConfigError, check_at_least
from mmrl.core.types import Context
from mmrl.data.collector import Collected, at_iteration, find_models
from mmrl.data.rollout_data import RolloutData
from mmrl.data.snapshots import Snapshots
from mmrl.distributed import parallel
from mmrl.distributed.thread_group import ThreadGroup


class AsyncRolloutData(RolloutData):
    """Data module that collects the next iterations in a thread while the policy learns from the current one.

    One thread does all that collecting is: curriculum, engine, rollout, verifiers, transforms, one collection after
    the other, in order. It samples from a copy of the policy, made at the iteration's boundary, so that a completion
    comes from one version; annotators run with the current policy. Evaluation waits until the thread has nothing to
    do. The first iteration waits for its own rows.

    With several processes each has such a thread. The threads have a process group of their own (`ThreadGroup`); copies
    of sharded weights are whole on every process.

    A checkpoint holds the state before what is under way was begun; a resumed run collects it again, with the weights
    of the checkpoint: its first batches are fresher than those of the run that was broken off. With `save_versions` it
    collects it with the weights that it was begun with, and is the run that was not broken off. With staleness 0
    everything is as in `RolloutData`, bit for bit.

    Args:
        staleness: how many versions older than the learner's the weights may be that sample an iteration's rows, and
            how many collections may be under way. 1 lets sampling and learning overlap; more only evens out
            collections of different lengths, at the cost of a further copy of the trained weights each.
        save_versions: whether checkpoints hold these copies too, `staleness` times the trained weights.
    """

    def __init__(self, staleness: int = 1, save_versions: bool = False, **kwargs: Any):
        super().__init__(**kwargs)
        check_at_least(0, "data", staleness=staleness)
        self.staleness, self.save_versions = staleness, save_versions
        self._pending: deque[PendingCollection] = deque()
        self._snapshots = Snapshots()
        self._thread: ThreadPoolExecutor | None = None
        self._stop = threading.Event()
        self._group: ThreadGroup | None = None  # of the threads of all processes
        self._learnt_state: dict[str, Any] | None = None  # collection state of the last trained iteration
        self._saved: tuple[list[int], dict[int, dict[str, Tensor]]] = [], {}  # versions of a checkpoint, and weights

    def setup(self, stage: str) -> None:
        super().setup(stage)
        if self.staleness:
            parallel.refuse_threads(self.trainer, f"data.staleness={self.staleness}")
            self._refuse_engine()

    def _refuse_engine(self) -> None:
        """Refuse an engine that cannot sample beside the learner in several processes."""
        if self.trainer.world_size > 1 and self.engine.thread_obstacle is not None:
            raise ConfigError(
                f"data.staleness={self.staleness} with trainer.devices > 1: {self.engine.thread_obstacle}; use "
                "engine=vllm_server or engine=local, or data.staleness=0"
            )

    def close(self) -> None:
        self._stop.set()
        super().close()  # closing an engine ends its running call
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)
        self._thread = None
        if self._group is not None:
            self._group.close()
        self._group = None
        self._pending.clear()
        self._snapshots.clear()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._learnt_state = None
        self._saved = (state["pending"], state["versions"]) if self.save_versions and "pending" in state else ([], {})

    def state_dict(self) -> dict[str, Any]:
        if not self.save_versions:
            return super().state_dict()
        versions = [pending.version for pending in self._pending]
        return super().state_dict() | {"pending": versions, "versions": self._snapshots.state_dict()}

    def _collection_state(self) -> dict[str, Any]:
        return super()._collection_state() if self._learnt_state is None else self._learnt_state

    def measure(self) -> dict[str, float]:
        for pending in self._pending:  # evaluation uses the same engine; errors are raised in their own iteration
            if pending.result is not None:
                pending.result.exception()
        return super().measure()

    def _next_collection(self, ctx: Context) -> Collected:
        if not self.staleness:
            return super()._next_collection(ctx)
        started = time.perf_counter()
        self._start(ctx, 1)
        result = self._pending[0].result
        assert result is not None  # it was begun, since this iteration is one of the run
        collected, self._learnt_state = result.result()
        return replace(collected, metrics={**collected.metrics, "time/wait": time.perf_counter() - started})

    def _finish_collection(self, ctx: Context) -> None:
        if not self.staleness:
            return
        self._pending.popleft()
        self._snapshots.keep({pending.version for pending in self._pending})
        self._start(ctx, self.staleness, first=1)

    def _start(self, ctx: Context, count: int, first: int = 0) -> None:
        """Start collections until `count` are pending, from `first` iterations ahead to the last iteration."""
        if self._thread is None:
            self._open_thread(ctx)
        for ahead in range(len(self._pending), count):
            self._submit(ctx, ctx.iteration, ctx.iteration + first + ahead)

    def _open_thread(self, ctx: Context) -> None:
        """Open the thread, and begin again what was under way when a checkpoint was saved. Collective."""
        self._stop.clear()
        self._group = parallel.thread_group(self.trainer, self._stop)
        self._thread = ThreadPoolExecutor(1, "rollout")
        self._learnt_state = copy.deepcopy(self._collection_state())
        if parallel.shards(self.trainer):  # their weights are sent to the engine over the learner's group
            self.engine.load_models(find_models(self))
        (versions, weights), self._saved = self._saved, ([], {})
        self._snapshots.load_state_dict(ctx.policy, weights)
        for iteration, version in enumerate(versions, ctx.iteration):
            self._submit(ctx, version, iteration)

    def _submit(self, ctx: Context, version: int, iteration: int) -> None:
        """Append a collection with the weights of `version`; beyond the last iteration it keeps them at most."""
        last = self.trainer.max_epochs
        planned = last is None or last < 0 or iteration < ctx.iteration + last - self.trainer.current_epoch
        if not (planned or self.save_versions):
            return
        policy, result = self._snapshots.of(ctx.policy, version), None
        if planned:
            rollout_ctx = replace(at_iteration(self, ctx, iteration), policy=policy, progress=self._stop_if_ended)
            assert self._thread is not None
            result = self._thread.submit(self._run_collection, rollout_ctx, version)
        self._pending.append(PendingCollection(version, result))

    def _run_collection(self, ctx: Context, version: int) -> tuple[Collected, dict[str, Any]]:
        """Run one collection (in the thread); returns its result and the collection state after it."""
        with parallel.use_device(ctx.device), parallel.use_thread_group(self._group):
            collected = self._collect(ctx, version)
            return collected, copy.deepcopy(RolloutData._collection_state(self))

    def _stop_if_ended(self, phase: str, done: int, total: int) -> None:
        """Progress callback of the thread: stop a collection whose run has ended. The main thread draws the bars."""
        if self._stop.is_set():
            raise InterruptedError("the run has ended")


@dataclass(frozen=True)
class PendingCollection:
    """A collection that runs in the thread, with the version of the sampling weights."""

    version: int
    result: Future[tuple[Collected, dict[str, Any]]] | None  # None beyond the last iteration
