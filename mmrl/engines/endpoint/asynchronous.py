"""What servers of the policy share: an HTTP application until an event, and answers that other threads give."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiohttp import web

_ACCEPT_TURNS = 5
"""Turns of the loop in which an accepted connection reaches the runner, which ends those that it knows; others stay."""


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
        site = web.TCPSite(runner, host, port)
        await site.start()
        ready(runner.addresses[0][1])
        await stop.wait()
        await site.stop()
        for _ in range(_ACCEPT_TURNS):
            await asyncio.sleep(0)
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
