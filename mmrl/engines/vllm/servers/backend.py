"""vLLM backend of one or several servers, launched by mmrl or already running."""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from mmrl.distributed.parallel import rank_and_size
from mmrl.engines.vllm.backend import Backend, EngineFailure, EngineOutput, EnginePrompt, EngineSampling, EngineWeights
from mmrl.engines.vllm.ranks import broadcast, raise_together, spans_nodes
from mmrl.engines.vllm.servers.client import Client, Refused
from mmrl.engines.vllm.servers.dispatch import PROBE_SECONDS, Dispatch
from mmrl.engines.vllm.servers.launch import LOCAL, Launch, find_host, serve_command
from mmrl.engines.vllm.servers.loop import Loop, wait_for_all
from mmrl.engines.vllm.servers.replica import Replica
from mmrl.engines.vllm.servers.restarts import RESUME, RestartService, request_restart
from mmrl.engines.vllm.weights.broadcast import WeightBroadcast
from mmrl.engines.vllm.weights.factors import read_factors
from mmrl.engines.vllm.weights.sent_weights import SentWeights

log = logging.getLogger(__name__)
T = TypeVar("T")


class Server(Backend):
    """Pool of `vllm serve` processes: all get every weight push, a prompt goes to a server with capacity.

    A server that dies or hangs is restarted with the last weights, and its unanswered prompts are sent again; their
    seeds give the same completions.

    Several training processes use one pool: rank 0 launches the servers, sends them the weights and restarts them, and
    every rank sends its prompts to all of them. `start`, `push` and `report_weights` are collective.

    Args:
        python: of an environment with vLLM and mmrl; None takes this one, or .venv-vllm in the working directory.
        urls: of running servers, as http://host:port; nothing is launched then.
        servers: how many are launched.
        port: where the first listens on rank 0's machine, the others behind it; None takes sockets in a private folder,
        which training processes on several nodes cannot share.
        devices: CUDA_VISIBLE_DEVICES of each launched server, for example ["2", "3"], without the learner's GPUs; None
        for all devices, with one training process only.
        dtype: of its weights and arithmetic, as torch names it; None takes that of the policy's weights.
        max_model_len: prompt and completion together, in tokens; None takes all that the model allows.
        eager: no CUDA graphs; None is true for a CPU build of vLLM and false otherwise.
        cache_gib: memory of the key-value cache; None is 1 for a CPU build, and what `memory_share` leaves otherwise.
        memory_share: of the GPU's memory, for weights and cache; None leaves it to vLLM.
        options: further arguments of `vllm serve`, by name.
        timeout_seconds: time without an answer after which a server's requests are abandoned; also for a push.
        start_seconds: time limit of a server's start.
        restarts: maximum number of restarts per run.
        in_flight: most requests at one server at a time, over all training processes.
        logs: folder for the servers' logs; None makes one among the temporary files.
        transfer: "files" that servers read, for which they need a folder that they share with rank 0; or "broadcast" by
        NCCL (gloo without GPUs), block by block, with which the folder has the model's configuration and tokenizer
        alone, and the base weights of `adapters`.
    """

    def __init__(
        self,
        python: str | None = None,
        urls: list[str] | None = None,
        servers: int = 1,
        port: int | None = None,
        devices: list[str] | None = None,
        dtype: str | None = None,
        max_model_len: int | None = None,
        eager: bool | None = None,
        cache_gib: float | None = None,
        memory_share: float | None = None,
        options: dict[str, Any] | None = None,
        timeout_seconds: float = 600.0,
        start_seconds: float = 600.0,
        restarts: int = 3,
        in_flight: int = 256,
        logs: str | None = None,
        transfer: str = "files",
    ):
        if transfer not in ("files", "broadcast"):
            raise ValueError(f"engine.transfer must be files or broadcast, got {transfer!r}")
        if servers < 1 or in_flight < 1 or restarts < 0 or timeout_seconds <= 0:
            raise ValueError("engine: servers and in_flight must be at least 1, restarts 0, timeout_seconds above 0")
        if devices is not None and len(devices) != servers:
            raise ValueError(f"engine.devices names {len(devices)} servers, engine.servers is {servers}")
        engine = {"dtype": dtype, "max_model_len": max_model_len, "eager": eager, "cache_gib": cache_gib}
        engine["memory_share"] = memory_share
        self.launch = Launch(
            python, servers, port, devices, start_seconds, timeout_seconds, logs, engine, dict(options or {})
        )
        self.timeout_seconds, self.start_seconds, self.probe_seconds = timeout_seconds, start_seconds, PROBE_SECONDS
        self.urls, self.restarts, self.in_flight = urls, restarts, in_flight
        self.takes_tensors = transfer == "broadcast"
        self.devices, self.memory_share, self.cache_gib = devices, memory_share, cache_gib
        self.restarted = 0
        self._replicas: list[Replica] = []
        self._loop: Loop | None = None
        self._private: Path | None = None  # sockets
        self._started: tuple[Path, int] | None = None  # folder and version
        self._pushed: tuple[Path | None, int] | None = None  # the last transfer: its file, unless it was a broadcast
        self._broadcast: WeightBroadcast | None = None  # on rank 0
        self._service: RestartService | None = None  # on rank 0, for the other ranks
        self._owner: Client | None = None  # on other ranks: of rank 0's service

    # ---------------------------------------------------------------- the backend

    def start(self, folder: Path, version: int) -> None:
        self.close()
        (rank, processes), several_nodes = rank_and_size(), spans_nodes()
        self._started, self._loop = (Path(folder).absolute(), version), Loop()
        try:
            with raise_together():
                if rank == 0:
                    self._start_servers(processes, several_nodes)
            self._share_servers()
        except BaseException:
            self.close()
            raise

    def generate(self, prompts: Sequence[EnginePrompt], drawing: EngineSampling) -> list[EngineOutput]:
        rank, processes = rank_and_size()
        first = rank % max(len(self._replicas), 1)  # few prompts of several ranks go to different servers
        replicas = self._replicas[first:] + self._replicas[:first]
        in_flight = max(self.in_flight // processes, 1)
        dispatch = Dispatch(
            replicas, self._revive, in_flight, self.timeout_seconds, self._version(), self.probe_seconds
        )
        return self._run(dispatch.answers(prompts, drawing))

    def push(self, weights: Path, version: int) -> None:
        path = Path(weights).absolute()
        self._pushed = None if self.takes_tensors else path, version  # for servers that restart from now on
        with raise_together():
            if self._broadcast is not None:
                factors, scales = read_factors(path)
                self._broadcast.push(factors, [factors], version, scales)
            elif rank_and_size()[0] == 0:
                self._run(self._on_every_replica(lambda r: self._with_retry(r, lambda: r.client.push([path], version))))
        self._share_servers()

    def load(self, blocks: Any, version: int) -> SentWeights:
        self._pushed, fingerprints = (None, version), SentWeights()
        with raise_together():
            try:
                if self._broadcast is not None:
                    fingerprints = self._broadcast.push(blocks.headers, blocks, version)
            finally:
                blocks.drain()
        self._share_servers()
        return fingerprints

    def report_weights(self) -> EngineWeights | None:
        with raise_together():
            return self._report() if rank_and_size()[0] == 0 else None

    def _report(self) -> EngineWeights:
        reports = self._run(
            self._on_every_replica(lambda replica: self._with_retry(replica, replica.client.report_weights))
        )
        first, *others = [(replica, report) for replica, several in zip(self._replicas, reports) for report in several]
        for replica, report in others:
            if report != first[1]:
                names = [n for n in first[1].tensors if report.tensors.get(n) != first[1].tensors[n]] or ["the version"]
                raise EngineFailure(f"{replica} holds other weights than {first[0]}: {names[0]}")
        return first[1]

    def close(self) -> None:
        replicas, self._replicas = self._replicas, []
        loop, self._loop = self._loop, None
        service, self._service = self._service, None
        sender, self._broadcast = self._broadcast, None
        owner, self._owner = self._owner, None
        if sender is not None:
            sender.close()
        if loop is not None and service is not None:
            loop.run(service.close())
        if replicas:
            with ThreadPoolExecutor(len(replicas)) as pool:
                list(pool.map(lambda replica: replica.down(), replicas))
        if loop is not None:
            for client in [*(replica.client for replica in replicas), *([owner] if owner else [])]:
                loop.run(client.close())
            loop.close()
        if self._private is not None:
            shutil.rmtree(self._private, ignore_errors=True)
        self._private = self._pushed = None

    # ---------------------------------------------------------------- bringing up

    def _start_servers(self, processes: int, several_nodes: bool) -> None:
        assert self._started is not None
        if self.urls:
            self._replicas = [Replica(Client(url, self.timeout_seconds)) for url in self.urls]
        else:
            host = find_host(self.launch.port) if several_nodes else LOCAL
            self._private = Path(tempfile.mkdtemp(prefix="mmrl-"))
            self._replicas = list(self.launch.build_replicas(self._started[0], self._private, processes, host))
            if processes > 1:
                self._service = RestartService(self._restart, self._private, host if several_nodes else None)
                self._run(self._service.start())
        self._run(self._on_every_replica(self._ensure_ready))
        if self.takes_tensors:
            self._broadcast = WeightBroadcast(self._replicas, self._run, self._with_retry, self.timeout_seconds)

    def _share_servers(self) -> None:
        """Give the other ranks the addresses of rank 0's servers and their counts of starts. Collective."""
        rank, processes = rank_and_size()
        if processes == 1:
            return
        servers = [(replica.client.address, replica.starts) for replica in self._replicas]
        shared, service = broadcast((servers, None if self._service is None else self._service.address))
        if rank == 0:
            return
        if not self._replicas:
            self._replicas = [Replica(Client(address, self.timeout_seconds)) for address, _ in shared]
            self._owner = None if service is None else Client(service, self.timeout_seconds)
        for replica, (_, starts) in zip(self._replicas, shared):
            replica.starts = starts

    def _version(self) -> int | None:
        """Return the version of the weights that every server holds."""
        last = self._pushed or self._started
        return None if last is None else last[1]

    async def _ensure_ready(self, replica: Replica) -> None:
        """Start a server, and load the pool's weights into it."""
        assert self._started is not None
        folder, version = self._started
        await replica.up()
        try:
            await replica.client.name(version)
            if not replica.launched and not self.takes_tensors:  # it has the weights that it was started with
                await replica.client.push(sorted(folder.glob("model*.safetensors")), version)
            if self._broadcast is not None:
                await self._broadcast.resend(replica)
            elif self._pushed is not None and self._pushed[0] is not None:
                await replica.client.push([self._pushed[0]], self._pushed[1])
        except (OSError, Refused) as error:
            advice = f"Start it with mmrl installed beside vLLM, VLLM_SERVER_DEV_MODE=1 and: {serve_command()}"
            raise EngineFailure(
                f"{replica} does not take weights: {error}. {'' if replica.launched else advice}"
            ) from error
        replica.starts += 1  # from now on it has the last weights

    async def _restart(self, server: int, starts: int, why: str) -> int:
        """Restart a server that another rank has found dead."""
        replica = self._replicas[server]
        await self._revive(replica, starts, why)
        return replica.starts

    async def _revive(self, replica: Replica, start: int, why: str) -> None:
        """Restart a server, unless it was restarted since; wait until it has the last weights."""
        async with replica.lock:
            if replica.starts != start:
                return
            if self._owner is not None:
                seconds = self.start_seconds + self.timeout_seconds  # of a start and of a push
                number = self._replicas.index(replica)
                replica.starts = await request_restart(self._owner, number, start, why, seconds)
                return
            if not replica.launched:
                raise EngineFailure(f"{replica} is gone: {why}. Start it again, then {RESUME}")
            if self.restarted >= self.restarts:
                raise EngineFailure(
                    f"{replica} is gone: {why}. The {self.restarts} restarts of engine.restarts are used up; {RESUME}"
                )
            self.restarted += 1
            log.warning(
                "%s is gone: %s. It is started again (%d of %d) with the weights that it had; prompts without an "
                "answer are sent again",
                *(replica, why, self.restarted, self.restarts),
            )
            await asyncio.to_thread(replica.down, True)
            await self._ensure_ready(replica)

    async def _with_retry(self, replica: Replica, action: Callable[[], Awaitable[T]]) -> T:
        """Call a function of a server; after a connection error, restart the server and call once more."""
        start = replica.starts
        try:
            return await action()
        except (OSError, Refused) as error:
            await self._revive(replica, start, str(error) or type(error).__name__)
        try:
            return await action()
        except (OSError, Refused) as error:
            raise EngineFailure(f"{replica}: {error}. {RESUME}") from error

    async def _on_every_replica(self, action: Callable[[Replica], Awaitable[T]]) -> list[T]:
        """Call a function of all servers concurrently."""
        return await wait_for_all(*map(action, self._replicas))

    def _run(self, coroutine: Any) -> Any:
        if self._loop is None:
            coroutine.close()
            raise EngineFailure("vLLM is not running: it has not been started, or it has been closed")
        return self._loop.run(coroutine)
