"""The same iteration with the collections of the next ones going on while this one is learnt from.

With staleness s, iteration k learns from rows that the weights of version max(0, k - s) sampled (counted from where the
run was started or resumed). That is a schedule, not a race: however long sampling and learning take, the same seed
gives the same run.
"""

from __future__ import annotations

import copy
import threading
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from mmrl import parallel
from mmrl.learners.playing import Played
from mmrl.learners.rollout_data import RolloutData
from mmrl.learners.snapshots import Snapshots
from mmrl.types import Context


class AsyncRolloutData(RolloutData):
    """Makes the data of the next iterations while the policy learns from this one's.

    One thread does all that collecting is: curriculum, engine, rollout, verifiers, transforms, one collection after
    the other, in order. It samples from a copy of the policy, made at the iteration's boundary, so that a completion
    comes from one version; stages annotate with the policy as it is when they run. Evaluation waits until the thread
    has nothing to do. The first iteration waits for its own rows.

    A checkpoint holds the state before what is under way was begun; a resumed run collects it again, with the weights
    of the checkpoint: its first batches are fresher than those of the run that was broken off. With staleness 0
    everything is as in `RolloutData`, bit for bit.

    Args:
        staleness: how many versions older than the learner's the weights may be that sample an iteration's rows, and
            how many collections may be under way. 1 lets sampling and learning overlap; more only evens out
            collections of different lengths, at the cost of a further copy of the trained weights each.
    """

    def __init__(self, staleness: int = 1, **kwargs: Any):
        super().__init__(**kwargs)
        if staleness < 0:
            raise ValueError(f"data.staleness must be at least 0, got {staleness}")
        self.staleness = staleness
        self._flights: deque[_Flight] = deque()
        self._snapshots = Snapshots()
        self._thread: ThreadPoolExecutor | None = None
        self._stop = threading.Event()
        self._landed: dict[str, Any] | None = None  # progress made by the collections that were learnt from

    def setup(self, stage: str) -> None:
        super().setup(stage)
        if self.staleness:
            parallel.refuse_threads(self.trainer, f"data.staleness={self.staleness}")

    def close(self) -> None:
        self._stop.set()
        super().close()  # an engine that is closed ends the call that it is in
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)
        self._thread = None
        self._flights.clear()
        self._snapshots.clear()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._landed = None

    def _progress_made(self) -> dict[str, Any]:
        return super()._progress_made() if self._landed is None else self._landed

    def measure(self) -> dict[str, float]:
        for flight in self._flights:  # the engine is one; what failed says so when its iteration comes
            flight.landing.exception()
        return super().measure()

    def _take(self, ctx: Context) -> Played:
        if not self.staleness:
            return super()._take(ctx)
        started = time.perf_counter()
        self._launch(ctx, 1)
        played, self._landed = self._flights[0].landing.result()
        return replace(played, metrics={**played.metrics, "seconds/wait": time.perf_counter() - started})

    def _go_on(self, ctx: Context) -> None:
        if not self.staleness:
            return super()._go_on(ctx)
        self._flights.popleft()
        self._snapshots.keep({flight.version for flight in self._flights})
        self._launch(ctx, self.staleness, first=1)

    def _launch(self, ctx: Context, count: int, first: int = 0) -> None:
        """Have `count` collections under way, for the iterations from `first` after this one; none beyond the last."""
        last = self.trainer.max_epochs
        left = count if last is None or last < 0 else last - self.trainer.current_epoch - first
        for ahead in range(len(self._flights), min(count, left)):
            if self._thread is None:
                self._stop.clear()
                self._thread, self._landed = ThreadPoolExecutor(1, "rollout"), copy.deepcopy(self._progress_made())
            version = ctx.iteration
            there = replace(
                ctx,
                iteration=version + first + ahead,
                policy=self._snapshots.of(ctx.policy, version),
                progress=self._heed,
            )
            self._flights.append(_Flight(version, self._thread.submit(self._fly, there, version)))

    def _fly(self, ctx: Context, version: int) -> tuple[Played, dict[str, Any]]:
        """In the thread: one collection, and the progress made with it."""
        with parallel.on(ctx.device):
            played = self._played(ctx, version)
        return played, copy.deepcopy(RolloutData._progress_made(self))

    def _heed(self, phase: str, done: int, of: int) -> None:
        """Bars are the main thread's; here a collection that nobody waits for any more is broken off."""
        if self._stop.is_set():
            raise InterruptedError("the run has ended")


@dataclass(frozen=True)
class _Flight:
    """A collection under way, and the version of the weights that sample it."""

    version: int
    landing: Future[tuple[Played, dict[str, Any]]]
