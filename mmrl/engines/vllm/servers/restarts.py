"""Restarts of servers that several training processes use: rank 0 launched them, the other ranks ask it."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web

from mmrl.engines.vllm.backend import EngineFailure
from mmrl.engines.vllm.servers.client import SOCKET, Client, Refused

log = logging.getLogger(__name__)

ROUTE = "/restart"
ENDING = 1.0  # seconds that an open request gets when the service ends

Restart = Callable[[int, int, str], Awaitable[int]]
"""Restarts a server of the pool, unless it was restarted since: (its number, its known count of starts, the reason) to
its count of starts, when it holds the last weights."""

RESUME = "resume from the last iteration with ckpt_path=<run folder>/checkpoints/last.ckpt"  # advice after a failure


class RestartService:
    """Answers other ranks' requests for a restart, in the event loop of rank 0's requests.

    Args:
        restart: restarts a server; raises EngineFailure, whose text the asking rank raises too.
        folder: private folder for its socket.
        host: address at which it listens instead, where ranks are on other nodes.
    """

    def __init__(self, restart: Restart, folder: Path, host: str | None = None):
        self.restart, self.folder, self.host = restart, folder, host
        self.address = ""
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        secret = "" if self.host is None else f"/{secrets.token_hex(16)}"  # a socket file is private already
        application = web.Application()
        application.router.add_post(f"{secret}{ROUTE}", self._answer)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=ENDING)
        await self._runner.setup()
        if self.host is None:
            await web.UnixSite(self._runner, str(self.folder / "restarts")).start()
            self.address = f"{SOCKET}{self.folder}/restarts"
        else:
            await web.TCPSite(self._runner, self.host, 0).start()
            self.address = f"http://{self.host}:{self._runner.addresses[0][1]}{secret}"

    async def _answer(self, request: web.Request) -> web.Response:
        payload = await request.json()
        try:
            starts = await self.restart(payload["server"], payload["starts"], payload["reason"])
        except EngineFailure as failure:
            log.error("%s", failure)  # it is raised on the rank that asked, while this one may wait for that rank
            return web.json_response({"error": str(failure)})
        return web.json_response({"starts": starts})

    async def close(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()


async def request_restart(service: Client, server: int, starts: int, reason: str, seconds: float) -> int:
    """Ask rank 0 for a restart, and wait for it at most `seconds`; return the server's count of starts."""
    payload = {"server": server, "starts": starts, "reason": reason}
    try:
        answer = await service.ask(ROUTE, payload, seconds)
    except (OSError, Refused) as error:
        raise EngineFailure(
            f"vLLM server {server} is gone: {reason}. Rank 0, which starts it again, does not answer ({error}); see "
            "rank 0's output and the servers' logs in engine.logs"
        ) from error
    if "error" in answer:
        raise EngineFailure(answer["error"])
    return answer["starts"]
