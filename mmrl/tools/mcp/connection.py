"""Connections to MCP servers: a thread with an event loop, in which a task holds each client open."""

from __future__ import annotations

import asyncio
import importlib
import shlex
import subprocess
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

_CLOSE_S = 8.0
"""Seconds that a server gets to end; the client sends SIGTERM after 2 s and SIGKILL after 4."""


class Connection:
    """One session with a server; closing it ends the server's process.

    Args:
        loop: of the thread that all sessions share.
        command: starts the server, which is spoken to over its stdin and stdout; None for `url`.
        url: of a server over streamable HTTP.
        env: variables of the server's process beside PATH, HOME and the like.
        start_s: seconds until the server must have said what it is.

    Raises:
        Exception: the server does not start, or speaks another protocol.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, command: str | None, url: str | None, env: dict[str, str], start_s: float
    ):
        self._loop, self._command, self._url, self._env = loop, command, url, env
        self._client: Any = None
        self._stop = asyncio.Event()
        self._task: asyncio.Task[Any] | None = None
        self._started: Future[None] = Future()
        self._done = asyncio.run_coroutine_threadsafe(self._hold(), loop)
        try:
            self._started.result(start_s)
        except BaseException:
            self.close()
            raise

    async def _hold(self) -> None:
        """Keep the client open until `_stop`: its context must end in the task that began it."""
        client = importlib.import_module("mcp.client.client")
        self._task = asyncio.current_task()
        try:
            async with client.Client(self._transport(), mode="legacy") as self._client:
                self._started.set_result(None)
                await self._stop.wait()
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(first_error(error))

    def _transport(self) -> Any:
        if self._url is not None:
            return self._url
        stdio = importlib.import_module("mcp.client.stdio")
        program, *arguments = shlex.split(self._command or "")
        parameters = stdio.StdioServerParameters(command=program, args=arguments, env=self._env)
        return stdio.stdio_client(parameters, errlog=subprocess.DEVNULL)

    def list_tools(self, limit_s: float) -> list[Any]:
        """Return the descriptions of all tools."""
        return self._run(self._list_tools(), limit_s)

    async def _list_tools(self) -> list[Any]:
        tools, cursor = [], None
        while True:
            page = await self._client.list_tools(cursor=cursor)
            tools += page.tools
            cursor = page.next_cursor
            if not cursor:
                return tools

    def call(self, name: str, arguments: dict[str, Any], limit_s: float) -> Any:
        """Call a tool and return the result as the protocol has it. Raises TimeoutError after `limit_s` seconds."""
        return self._run(self._client.call_tool(name, arguments), limit_s)

    def _run(self, coroutine: Any, limit_s: float) -> Any:
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(limit_s)
        except TimeoutError:
            future.cancel()
            raise

    def stop(self) -> None:
        """Begin to end the session and the server."""
        self._loop.call_soon_threadsafe(self._stop.set)
        if not self._started.done() and self._task is not None:  # it still waits for the first answer
            self._loop.call_soon_threadsafe(self._task.cancel)

    @property
    def is_over(self) -> bool:
        """Whether the session has ended, and its server with it."""
        return self._done.done()

    def close(self) -> None:
        """End the session and the server, and wait for it."""
        self.stop()
        with suppress(BaseException):
            self._done.result(_CLOSE_S)


def start_loop() -> asyncio.AbstractEventLoop:
    """Run an event loop in a thread of its own."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="mcp", daemon=True).start()
    return loop


def first_error(error: BaseException) -> BaseException:
    """Return the first error inside of the groups that tasks raise."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
