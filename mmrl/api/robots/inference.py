"""Inference beside the control loop: a chunk is asked for, and is there some control steps later."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmrl.api.robots.clock import Clock, SimulatedClock


@dataclass(frozen=True)
class ChunkQuery:
    """One question to the policy.

    Args:
        observation: of the robot.
        step: control step of the observation.
        seed: of the policy's draws.
        previous: actions [R, A] of this control step and those after it in the chunk that is being played; None at the
            start and after a takeover.
        executed: s, control steps between the observation of that chunk and this one.
        delay: d, control steps until the answer is expected.
    """

    observation: Mapping[str, Any]
    step: int
    seed: int
    previous: np.ndarray | None = None
    executed: int = 0
    delay: int = 0


@dataclass(frozen=True)
class ChunkReply:
    """The chunk [H, A] of a query, and the seconds from question to answer."""

    query: ChunkQuery
    chunk: np.ndarray
    seconds: float


ChunkPolicy = Callable[[ChunkQuery], np.ndarray]
"""A policy that answers a query by a chunk [H, A]."""


class Inference(ABC):
    """Asks a policy one thing at a time.

    Args:
        policy: that is asked.
        delay_s: seconds that are added to what the policy takes itself.
    """

    def __init__(self, policy: ChunkPolicy, delay_s: float = 0.0):
        self.policy, self.delay_s = policy, delay_s
        self.busy = False  # whether an answer is to come

    @abstractmethod
    def ask(self, query: ChunkQuery) -> None:
        """Begin to compute; the previous answer must have been taken."""

    @abstractmethod
    def poll(self) -> ChunkReply | None:
        """The answer, once, if it is there. Raises what the policy raised."""

    @abstractmethod
    def wait(self) -> ChunkReply:
        """The answer, when it is there."""

    def close(self) -> None:
        """End without waiting for an answer."""


class ThreadedInference(Inference):
    """Inference in a thread, in the time that it takes.

    Args:
        policy: that is asked; it is called in the thread.
        delay_s: seconds that are added.
    """

    def __init__(self, policy: ChunkPolicy, delay_s: float = 0.0):
        super().__init__(policy, delay_s)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mmrl-robot")
        self._answer: Future[ChunkReply] | None = None

    def ask(self, query: ChunkQuery) -> None:
        self._answer, self.busy = self._thread.submit(self._compute, query), True

    def _compute(self, query: ChunkQuery) -> ChunkReply:
        start = time.monotonic()
        chunk = self.policy(query)
        if self.delay_s:
            time.sleep(self.delay_s)
        return ChunkReply(query, chunk, time.monotonic() - start)

    def poll(self) -> ChunkReply | None:
        return self.wait() if self._answer is not None and self._answer.done() else None

    def wait(self) -> ChunkReply:
        assert self._answer is not None
        answer, self._answer, self.busy = self._answer, None, False
        return answer.result()

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


class SimulatedInference(Inference):
    """Inference in simulated time: it takes `delay_s` exactly, however long the policy computes.

    Args:
        policy: that is asked.
        clock: of the control loop.
        delay_s: seconds from question to answer.
    """

    def __init__(self, policy: ChunkPolicy, clock: SimulatedClock, delay_s: float = 0.0):
        super().__init__(policy, delay_s)
        self.clock = clock
        self._query: ChunkQuery | None = None
        self._ready = 0.0

    def ask(self, query: ChunkQuery) -> None:
        self._query, self._ready, self.busy = query, self.clock.now() + self.delay_s, True

    def poll(self) -> ChunkReply | None:
        return self.wait() if self._query is not None and self.clock.now() >= self._ready - 1e-9 else None

    def wait(self) -> ChunkReply:
        assert self._query is not None
        self.clock.sleep_until(self._ready)
        query, self._query, self.busy = self._query, None, False
        return ChunkReply(query, self.policy(query), self.delay_s)


def start_inference(policy: ChunkPolicy, clock: Clock, delay_s: float = 0.0) -> Inference:
    """Inference that fits a clock: in a thread, or in simulated time."""
    if isinstance(clock, SimulatedClock):
        return SimulatedInference(policy, clock, delay_s)
    return ThreadedInference(policy, delay_s)
