"""Run coroutines from synchronous code, also inside a running event loop as in notebooks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Loop:
    """Event loop in a thread of its own; the caller waits."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="engine requests")
        self._thread.start()

    def run(self, made: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result; cancel it when the caller is interrupted."""
        future = asyncio.run_coroutine_threadsafe(made, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        self.run(_cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_all() -> None:
    """Cancel all running tasks, and wait for them."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def wait_for_all(*steps: Awaitable[T]) -> list[T]:
    """Run steps concurrently and return their results; the first failure is raised when all have ended."""
    results = await asyncio.gather(*steps, return_exceptions=True)
    for one in results:
        if isinstance(one, BaseException):
            raise one
    return results  # type: ignore[return-value]
