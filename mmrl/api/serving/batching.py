"""Batch the requests of several clients into one call of the policy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from mmrl.core.types import Completion, Request, Sampling
from mmrl.engines.base import Engine
from mmrl.engines.endpoint.asynchronous import resolve
from mmrl.engines.local import LocalEngine
from mmrl.policies.base import Policy


@dataclass(frozen=True)
class Served:
    """Answer to one request.

    Args:
        completion: what the policy sampled.
        rows: requests in the same call of the policy.
        seconds: of that call.
    """

    completion: Completion
    rows: int
    seconds: float

    @property
    def output(self) -> Any:
        """The decoded action."""
        return self.completion.output


@dataclass
class _Waiting:
    request: Request
    sampling: Sampling
    future: asyncio.Future[Served]


class Batcher:
    """Collect the requests that wait while the policy runs, and sample them in its next call.

    Request i draws from its own seed alone, so the others of a call do not change its draws. The last bits of floats
    may depend on the number of rows of a call, as in every matrix product; max_batch=1 excludes that.

    Args:
        engine: with weights.
        max_batch: most requests of one call.
    """

    @classmethod
    def of(cls, policy: Policy, max_batch: int) -> Batcher:
        """Build one that samples from a policy in this process."""
        engine = LocalEngine(max_rows=max_batch)
        engine.sync(policy, 0)
        return cls(engine, max_batch)

    def __init__(self, engine: Engine, max_batch: int):
        self._engine, self._max_batch = engine, max_batch
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="policy")
        self._unanswered: set[asyncio.Future[Served]] = set()
        self._began: float | None = None  # when the present call of the policy began

    async def ask(self, request: Request, sampling: Sampling) -> Served:
        """Return the answer to one request.

        Raises:
            Exception: what the policy raised about this request.
        """
        future = asyncio.get_running_loop().create_future()
        self._unanswered.add(future)
        future.add_done_callback(self._unanswered.discard)
        self._queue.put_nowait(_Waiting(request, sampling, future))
        return await future

    def refuse_all(self, error: Exception) -> None:
        """Answer every request that waits for the policy by an error."""
        for future in list(self._unanswered):
            resolve(future, error)

    @property
    def busy_s(self) -> float:
        """Seconds since the present call of the policy began; 0 without one."""
        began = self._began
        return 0.0 if began is None else time.monotonic() - began

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve requests inside the context."""
        batches = asyncio.create_task(self.run())
        try:
            yield
        finally:
            batches.cancel()
            with suppress(asyncio.CancelledError):
                await batches
            self.close()

    async def run(self) -> None:
        """Serve requests until the task is cancelled; the event loop stays free while the policy runs."""
        while True:
            waiting = [await self._queue.get()]
            await asyncio.sleep(0)  # lets clients whose message has arrived join this call
            while not self._queue.empty() and len(waiting) < self._max_batch:
                waiting.append(self._queue.get_nowait())
            try:
                await self._serve(waiting)
            except Exception as error:  # otherwise all clients would wait forever
                for each in waiting:
                    resolve(each.future, error)

    async def _serve(self, waiting: Sequence[_Waiting]) -> None:
        """Sample the requests, in one call for each decode."""
        groups: dict[Sampling, list[_Waiting]] = {}
        for each in waiting:
            if not each.future.done():  # its client is gone, or has had its error
                groups.setdefault(each.sampling, []).append(each)
        for sampling, group in groups.items():
            requests = [each.request for each in group]
            results = await asyncio.get_running_loop().run_in_executor(self._thread, self._sample, requests, sampling)
            for each, result in zip(group, results):
                resolve(each.future, result)

    def close(self) -> None:
        """End the policy's thread after its present call."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _sample(self, requests: Sequence[Request], sampling: Sampling) -> list[Served | Exception]:
        """Sample all requests at once; where that fails each one alone, so that a bad one has its own error."""
        start, self._began = time.perf_counter(), time.monotonic()
        try:
            completions = self._engine.sample(requests, sampling)
        except Exception as error:
            self._began = None
            if len(requests) == 1:
                return [error]
            return [self._sample([request], sampling)[0] for request in requests]
        seconds, self._began = time.perf_counter() - start, None
        return [Served(completion, len(requests), seconds) for completion in completions]
