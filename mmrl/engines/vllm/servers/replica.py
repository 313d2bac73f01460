"""Servers of a pool: launched by mmrl, or started by the user."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from mmrl.distributed.ports import try_port
from mmrl.engines.vllm.backend import EngineFailure
from mmrl.engines.vllm.servers.client import SOCKET, Client
from mmrl.engines.vllm.servers.diagnosis import FREE_PORT, diagnose
from mmrl.engines.vllm.servers.process import ServerProcess

LOOK = 0.3  # seconds between two health checks of a starting server
RELEASE = 30.0  # seconds in which the last process of a killed server has to leave its port


class Replica:
    """Server that the user started; mmrl cannot restart it."""

    launched = False

    def __init__(self, client: Client):
        self.client = client
        # number of starts after which it got the last weights; a request that failed before a restart must not trigger
        # another one
        self.starts = 0
        self.progress = 0.0  # time of its last completed request
        self.lock = asyncio.Lock()

    def __str__(self) -> str:
        return f"the vLLM server at {self.client.address}"

    async def up(self) -> None:
        """Check that the server is healthy; raises EngineFailure with the reason."""
        if not await self.client.healthy():
            raise EngineFailure(f"no answer from {self.client.address}/health; does the server of engine.urls run?")

    def down(self, kill: bool = False) -> None:
        """Do nothing: mmrl did not start this server."""

    def read_log(self) -> str:
        """Return a diagnosis from the server's log, if it has one."""
        return ""


class Launched(Replica):
    """Server that mmrl launches with `command`; its output goes to `log`."""

    launched = True

    def __init__(
        self, client: Client, command: Sequence[str], environment: Mapping[str, str], log: Path, seconds: float
    ):
        super().__init__(client)
        self.command, self.environment, self.log, self.seconds = list(command), environment, log, seconds
        self.process: ServerProcess | None = None
        self._begins = 0  # offset in the log at which this start begins

    def __str__(self) -> str:
        return f"the vLLM server with the log {self.log}"

    async def up(self) -> None:
        await self._free()
        self._begins = self.log.stat().st_size if self.log.exists() else 0
        self.process = ServerProcess(self.command, self.log, self.environment)
        until = time.monotonic() + self.seconds
        while not await self.client.healthy():
            if not self.process.alive:
                raise EngineFailure(f"vLLM did not start: {self.read_log()} The whole log is {self.log}")
            if time.monotonic() > until:
                self.down(kill=True)
                raise EngineFailure(f"vLLM did not start within {self.seconds:.0f} s: {self.read_log()} See {self.log}")
            await asyncio.sleep(LOOK)

    async def _free(self) -> None:
        """Refuse a port that another process uses, and remove the socket file of a killed server."""
        if self.client.address.startswith(SOCKET):
            Path(self.client.address.removeprefix(SOCKET)).unlink(missing_ok=True)
            return
        url = urlsplit(self.client.address)
        until = time.monotonic() + (RELEASE if self.starts else 0)  # a killed process keeps its port until it is gone
        while (error := try_port(url.port, url.hostname)) is not None:
            if time.monotonic() > until:
                raise EngineFailure(f"engine.port: {url.port} is taken ({error.strerror}); {FREE_PORT}") from error
            await asyncio.sleep(LOOK)

    def down(self, kill: bool = False) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.stop(kill)

    def read_log(self) -> str:
        line, advice = diagnose(self.log, self._begins)
        return f"{line.rstrip('.')}. {advice[:1].upper() + advice[1:]}.".removesuffix(" .")
