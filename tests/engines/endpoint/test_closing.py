"""Clients that connect while a server ends: their connections are closed, whenever they came."""

import asyncio
import contextlib
import gc
import socket

import pytest
from aiohttp import web

from mmrl.engines.endpoint.asynchronous import serve_app


@pytest.mark.parametrize("turns", range(8))
def test_no_client_waits_for_a_server_that_ended(turns):
    """Connected some turns of the loop before the end, with a request under way or none."""

    async def run() -> list[socket.socket]:
        stop, port = asyncio.Event(), asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(serve_app(web.Application(), "127.0.0.1", 0, port.set_result, stop))
        clients = [socket.create_connection(("127.0.0.1", await port), timeout=10) for _ in range(3)]
        clients[0].sendall(b"GET / HTTP/1.1\r\nHost: here\r\n")  # the last line of the head is missing
        for _ in range(turns):
            await asyncio.sleep(0)
        stop.set()
        await serving
        return clients

    gc.collect()
    gc.disable()  # a collection would close leaked connections
    try:
        for client in asyncio.run(run()):
            with client, contextlib.suppress(ConnectionResetError):
                assert client.recv(1) == b""
    finally:
        gc.enable()
