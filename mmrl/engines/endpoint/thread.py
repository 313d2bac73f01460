"""Run a server in a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Protocol, Self

_START_S = 30.0
_END_S = 10.0


class AsyncServer(Protocol):
    """A server that ends when an event is set."""

    async def serve(self, host: str, port: int, ready: Callable[[int], None], stop: asyncio.Event) -> None: ...


class ServerThread:
    """Serve at a free port of 127.0.0.1 inside a `with` block; thread and sockets end with it.

    Args:
        server: to run.
    """

    def __init__(self, server: AsyncServer):
        self._server, self.port = server, 0
        self.loop = asyncio.new_event_loop()
        self._stop, self._ready = asyncio.Event(), threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="endpoint", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(_START_S) or self._error is not None:
            raise RuntimeError(f"the endpoint did not start: {self._error}") from self._error
        return self

    def __exit__(self, *error: object) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_END_S)

    def _run(self) -> None:
        try:
            # it also ends connections that came while the server closed, whose clients would wait for ever
            with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
                runner.run(self._server.serve("127.0.0.1", 0, self._announce, self._stop))
        except BaseException as error:
            self._error = error
        finally:
            self._ready.set()

    def _announce(self, port: int) -> None:
        self.port = port
        self._ready.set()
