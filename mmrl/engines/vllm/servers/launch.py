"""Settings and command lines of the vLLM servers that mmrl launches."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mmrl.engines.vllm.backend import EngineFailure
from mmrl.engines.vllm.options import engine_options, load_format
from mmrl.engines.vllm.python import find_python, vllm_version
from mmrl.engines.vllm.servers.client import SOCKET, Client
from mmrl.engines.vllm.servers.replica import Launched

LOCAL = "127.0.0.1"
SERVING = {"enable_scale_out": True, "disable_uvicorn_access_log": True}  # scale_out: /inference/v1/generate
ENVIRONMENT = {
    "VLLM_SERVER_DEV_MODE": "1",  # enables the routes for weights; the server's socket is private to this user
    "PYTHONSAFEPATH": "1",  # no imports from the working directory
}
ON_CPU = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # the learner needs the same cores
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # one worker needs no process of its own
}


@dataclass(frozen=True)
class Launch:
    """Settings of launched servers; `Server` describes them."""

    python: str | None
    servers: int
    port: int | None
    devices: list[str] | None
    start_seconds: float
    timeout_seconds: float
    logs: str | None
    engine: dict[str, Any]  # keyword arguments of `engine_options`
    options: dict[str, Any]  # further arguments of `vllm serve`

    def build_replicas(self, folder: Path, sockets: Path, processes: int = 1, host: str = LOCAL) -> list[Launched]:
        """Build the servers, which are not running yet.

        Args:
            folder: the checkpoint.
            sockets: private folder for their sockets.
            processes: number of training processes.
            host: address that they listen at, if they have a port.
        """
        python = self.python or find_python()
        if python is None:
            raise EngineFailure(
                "engine=vllm_server finds no vLLM: neither here nor in .venv-vllm of the working directory, which "
                "`make vllm-cpu` makes; name one with engine.python=..., or running servers with engine.urls=[...]"
            )
        if (version := vllm_version(python)) is None:
            raise EngineFailure(f"engine.python={python} has no vLLM, or is no Python; `make vllm-cpu` makes one")
        on_cpu = "cpu" in version
        if not on_cpu:
            self._check_devices(processes)
        # options that all servers have
        options = engine_options(folder, on_cpu, **self.engine) | {"load_format": load_format(folder)}
        options |= SERVING | self.options
        logs = Path(self.logs or tempfile.mkdtemp(prefix="mmrl-logs-")).absolute()
        logs.mkdir(parents=True, exist_ok=True)
        replicas: list[Launched] = []
        place: dict[str, Any]
        # address, command, devices and log of each
        for i in range(self.servers):
            if self.port is None:
                address, place = f"{SOCKET}{sockets}/{i}", {"uds": f"{sockets}/{i}"}
            else:
                address, place = f"http://{host}:{self.port + i}", {"host": host, "port": self.port + i}
            command = [python, "-m", "vllm.entrypoints.cli.main", *words(options | place)]
            environment = ENVIRONMENT | (ON_CPU if on_cpu else {})
            if self.devices is not None:
                environment["CUDA_VISIBLE_DEVICES"] = self.devices[i]
            client = Client(address, self.timeout_seconds)
            replicas.append(Launched(client, command, environment, logs / f"server-{i}.log", self.start_seconds))
        return replicas

    def _check_devices(self, processes: int) -> None:
        """Refuse servers without GPUs of their own beside several training processes, which take a GPU each."""
        if self.devices is None and processes > 1 and torch.cuda.is_available():
            learners = torch.cuda.device_count()
            raise EngineFailure(
                f"engine.devices=[...] must name the GPUs of the servers, one entry per server, with {processes} "
                f"training processes on {learners} visible GPUs: GPUs that trainer.devices leaves to them, as in "
                'trainer.devices=[0,1] engine.servers=2 engine.devices=["2","3"]'
            )


def find_host(port: int | None) -> str:
    """Return the address of rank 0's node for ranks on other nodes; refuse servers that have no port."""
    if port is None:
        raise EngineFailure(
            "engine=vllm_server launches servers that listen at sockets of one node, and the training processes run on "
            "several; set engine.port=8000 (servers on rank 0's node, from this port on), or name running servers with "
            "engine.urls=[http://HOST:PORT], which need engine.folder on storage that all nodes share"
        )
    return os.environ.get("MASTER_ADDR", LOCAL)


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


def serve_command() -> str:
    """Return the command that starts a server which mmrl can use."""
    return f"vllm {' '.join(words(engine_options(Path('<folder>'), False, dtype='<dtype>') | SERVING))}"
