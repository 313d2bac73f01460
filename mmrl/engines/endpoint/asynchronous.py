"""What servers of the policy share: an HTTP application until an event, and answers that other threads give."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiohttp import web

_ACCEPT_TURNS = 5
"""Turns of the loop after which the runner knows, and therefore ends, every connection that was accepted."""


async def serve_app(
    app: web.Application, host: str, port: int, ready: Callable[[int], None], stop: asyncio.Event, **options: Any
) -> None:
    """Serve an application until `stop` is set.

    Args:
        app: with its routes.
        host: address to listen at.
        port: 0 takes a free one.
        ready: called with the port once clients can connect.
        stop: ends it.
        options: of `aiohttp.web.AppRunner`.
    """
    runner = web.AppRunner(app, access_log=None, **options)
    await runner.setup()
    try:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(runner.server, host, port)
        try:
            ready(server.sockets[0].getsockname()[1])
            await stop.wait()
            # a connection that is accepted in the turn in which an asyncio server closes would stay open, unread:
            # accept no more, and close some turns later; the system resets connections that were not accepted
            for listener in server.sockets:
                loop.remove_reader(listener)
            for _ in range(_ACCEPT_TURNS):
                await asyncio.sleep(0)
        finally:
            server.close()
    finally:
        await runner.cleanup()


def resolve(future: asyncio.Future[Any], result: Any) -> None:
    """Give a future its result, or raise in whoever awaits it where that is an exception."""
    if future.done():  # its client is gone
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
