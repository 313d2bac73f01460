"""Broadcast weights from the trainer's first process to the workers of servers."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import torch.distributed as dist
from torch import Tensor

from mmrl.engines.vllm.backend import EngineFailure
from mmrl.engines.vllm.servers.client import SOCKET, Refused
from mmrl.engines.vllm.servers.launch import LOCAL
from mmrl.engines.vllm.servers.loop import wait_for_all
from mmrl.engines.vllm.servers.replica import Replica
from mmrl.engines.vllm.servers.restarts import RESUME
from mmrl.engines.vllm.weights.group import GroupAddress, WeightGroup, read_headers
from mmrl.engines.vllm.weights.sent_weights import SentWeights

log = logging.getLogger(__name__)
FAILURES = (OSError, Refused, RuntimeError)  # of requests, and of torch's process groups


@dataclass(frozen=True)
class Kept:
    """The last weights that were sent, in host memory, for servers that are restarted."""

    tensors: dict[str, Tensor]
    scales: dict[str, float] | None
    version: int


class WeightBroadcast:
    """Sends weights block by block to all servers of a pool at the same time, by NCCL or gloo.

    NCCL is used where the weights and all servers are on GPUs, gloo otherwise. The process that sends keeps a copy in
    host memory if servers can be restarted. A broadcast that fails is repeated for each server on its own; servers that
    do not take it are restarted.

    Args:
        replicas: the servers.
        run: runs a coroutine in the event loop of the servers' clients and returns its result.
        retry: calls a function of a server, and once more after restarting it.
        seconds: time limit of each step.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        run: Callable[[Coroutine[Any, Any, Any]], Any],
        retry: Callable[[Replica, Callable[[], Awaitable[Any]]], Awaitable[Any]],
        seconds: float,
    ):
        self._replicas, self._run, self._retry, self._seconds = list(replicas), run, retry, seconds
        self._store: dist.TCPStore | None = None
        self._groups = 0  # that have been made
        self._group: WeightGroup | None = None
        self._members: tuple[Any, ...] = ()  # of the group
        self._kept: Kept | None = None
        self._lock = asyncio.Lock()  # one transfer at a time

    def push(
        self,
        headers: Mapping[str, Tensor],
        blocks: Iterable[Mapping[str, Tensor]],
        version: int,
        scales: dict[str, float] | None = None,
    ) -> SentWeights:
        """Send all blocks; return the fingerprints of their tensors in the dtypes of the servers.

        Args:
            headers: all tensors, with or without data.
            blocks: the tensors, some at a time.
            version: of the weights.
            scales: if the tensors are factors of low-rank adapters.
        """
        contents = _contents(headers, scales)
        checks = [self._retry(r, lambda r=r: r.client.check_broadcast(contents)) for r in self._replicas]
        answers = self._run(wait_for_all(*checks))
        dtypes = {dtype for several in answers for answer in several for dtype in answer["dtypes"]}
        fingerprints, failure = SentWeights(), self._attempt(None, self._begin())
        host_tensors: dict[str, Tensor] = {}
        restartable = any(replica.launched for replica in self._replicas)
        for block in blocks:
            fingerprints.record(block, dtypes)
            if restartable:
                host_tensors.update({name: tensor.detach().to("cpu", copy=True) for name, tensor in block.items()})
            failure = self._attempt(failure, self._send(self._replicas, answers, block, version, scales))
        failure = self._attempt(failure, self._finish(version))
        self._kept = Kept(host_tensors, scales, version) if restartable else None
        if failure is not None:
            self._repeat(failure)
        return fingerprints

    def _attempt(self, failure: Exception | None, step: Coroutine[Any, Any, None]) -> Exception | None:
        """Run a step unless one has failed; return the first failure."""
        if failure is not None:
            step.close()
            return failure
        try:
            self._run(step)
        except FAILURES as error:
            self._leave()
            self._run(self._release())
            return error
        return None

    def _repeat(self, failure: Exception) -> None:
        if self._kept is None:
            raise EngineFailure(
                f"weights were not broadcast: {failure}. Start the servers again, then {RESUME}"
            ) from failure
        log.warning("weights were not broadcast: %s; each server gets them on its own", failure)
        self._run(
            wait_for_all(
                *(self._retry(replica, lambda replica=replica: self.resend(replica)) for replica in self._replicas)
            )
        )

    async def resend(self, replica: Replica) -> None:
        """Send the last weights to one server; nothing is sent before the first broadcast."""
        async with self._lock:
            if (weights := self._kept) is None:
                return
            try:
                answers = [await replica.client.check_broadcast(_contents(weights.tensors, weights.scales))]
                await replica.client.start_update()
                await self._send([replica], answers, weights.tensors, weights.version, weights.scales)
                await replica.client.finish_update(weights.version)
            except FAILURES as error:
                raise error if isinstance(error, OSError | Refused) else ConnectionError(str(error)) from error
            finally:
                self._leave()

    async def _begin(self) -> None:
        await self._lock.acquire()
        await wait_for_all(*(replica.client.start_update() for replica in self._replicas))

    async def _send(
        self,
        replicas: Sequence[Replica],
        answers: Sequence[Sequence[Mapping[str, Any]]],
        tensors: Mapping[str, Tensor],
        version: int,
        scales: dict[str, float] | None,
    ) -> None:
        """Broadcast tensors to some servers, which have answered `check_broadcast`."""
        group = await self._connect(replicas, answers, {tensor.device.type for tensor in tensors.values()})
        contents = _contents(tensors, scales)
        receivers = [replica.client.receive(contents, version) for replica in replicas]
        steps = [asyncio.ensure_future(s) for s in (asyncio.to_thread(group.send, tensors.values()), *receivers)]
        done, _ = await asyncio.wait(steps, return_when=asyncio.FIRST_EXCEPTION)
        if any(step.exception() for step in done):
            self._leave()  # members that wait for the failed one fail too, before their time limit
        await wait_for_all(*steps)

    async def _finish(self, version: int) -> None:
        await wait_for_all(*(replica.client.finish_update(version) for replica in self._replicas))
        self._lock.release()

    async def _release(self) -> None:
        self._lock.release()

    async def _connect(
        self, replicas: Sequence[Replica], answers: Sequence[Sequence[Mapping[str, Any]]], devices: set[str]
    ) -> WeightGroup:
        """Return the group of this process and the workers of some servers, a new one if they were restarted."""
        everywhere = devices | {answer["device"] for several in answers for answer in several}
        backend = "nccl" if everywhere == {"cuda"} else "gloo"
        members = (backend, *((replica, replica.starts) for replica in replicas))
        if self._group is not None and self._members == members:
            return self._group
        self._leave()
        host, self._groups = find_own_address(replicas[0].client.address), self._groups + 1
        if self._store is None:
            self._store = dist.TCPStore(host, 0, None, True, timedelta(seconds=self._seconds), wait_for_workers=False)
        size = 1 + sum(map(len, answers))
        address = GroupAddress(host, self._store.port, f"weights-{self._groups}", size, backend, self._seconds)
        joins, rank = [], 1
        for replica, workers in zip(replicas, answers, strict=True):
            joins.append(replica.client.join(asdict(address), rank))
            rank += len(workers)
        self._group, *_ = await wait_for_all(asyncio.to_thread(WeightGroup, address, 0, self._store), *joins)
        self._members = members
        return self._group

    def _leave(self) -> None:
        group, self._group = self._group, None
        if group is not None:
            group.close()

    def close(self) -> None:
        """Leave the group and free the copy."""
        self._leave()
        self._store = self._kept = None


def find_own_address(server: str) -> str:
    """Return the address of this machine under which a server, named by its own address, can reach it."""
    if server.startswith(SOCKET):
        return LOCAL
    url = urlsplit(server)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # nothing is sent
        probe.connect((url.hostname, url.port or 80))
        return probe.getsockname()[0]


def _contents(tensors: Mapping[str, Tensor], scales: dict[str, float] | None) -> dict[str, Any]:
    return {"tensors": read_headers(tensors), "scales": scales}
