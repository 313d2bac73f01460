"""Policy server over websockets: openpi's protocol, with a token, a health check and batches over clients."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import numpy as np

from mmrl.api.memory import add_memory, split_memory
from mmrl.api.serving.batching import Batcher
from mmrl.api.serving.limits import ObservationLimits
from mmrl.api.serving.requests import read_request
from mmrl.core.errors import is_user_error
from mmrl.core.rng import derive_seed
from mmrl.core.types import Request, Sampling
from mmrl.policies.base import Policy
from mmrl.policies.remote.token import is_token
from mmrl.policies.remote.wire import PROTOCOL, pack, unpack
from mmrl.rollouts.env.memory import MEMORY

if TYPE_CHECKING:
    from websockets.asyncio.server import ServerConnection
    from websockets.http11 import Request as HttpRequest
    from websockets.http11 import Response

MAX_MESSAGE = 16 * 2**20  # bytes: four images of 1,024 x 1,024
CALL_S = 300.0
"""Seconds after which a request that the policy has not answered is an error for its client."""
_MOST_TRACEBACKS = 20  # of different errors of the program; more are one line each
_INTERNAL_ERROR = 1011  # of RFC 6455, as openpi's server closes after an error


class PolicyServer:
    """Answer observations with a policy's actions.

    A client gets one message of metadata when it connects; then each of its messages, a map of observations, is
    answered by {"actions": [H, A], "server_timing": {...}}. Texts, images and arrays are bounded (`ObservationLimits`).
    An error is answered by a text, and the connection is closed; the other clients are not affected. While one call of
    the policy takes longer than `CALL_S` the others are answered by an error at once. GET /healthz answers 200, and 503
    then.
    Source: openpi, websocket_policy_server.py.

    Args:
        policy: with its weights.
        sampling: decode of requests that name none.
        seed: of the draws of requests that name none; request k of a client draws from (seed, k) alone.
        contract: of the simulator of the training, for the metadata.
        token: that a client must send; None asks for none.
        max_batch: most requests of one call of the policy.
        report: called with one line about each error.
    """

    def __init__(
        self,
        policy: Policy,
        sampling: Sampling,
        seed: int = 0,
        contract: Mapping[str, Any] | None = None,
        token: str | None = None,
        max_batch: int = 32,
        report: Callable[[str], None] = print,
    ):
        self._policy, self._seed, self._report = policy, seed, report
        self._sampling = replace(sampling, stop=tuple(sampling.stop))  # hashable; a configuration has a list
        self._token = token
        self._batcher = Batcher.of(policy, max_batch)
        self._limits = ObservationLimits.of(policy, contract or {})
        self._tracebacks: set[str] = set()  # that were reported
        self.metadata = describe_policy(policy, sampling, contract or {})

    @property
    def busy(self) -> bool:
        """Whether a call of the policy is under way."""
        return self._batcher.busy_s > 0

    async def serve(self, host: str, port: int, ready: Callable[[int], None], stop: asyncio.Event) -> None:
        """Serve until `stop` is set.

        Args:
            host: address to listen at.
            port: 0 takes a free one.
            ready: called with the port once clients can connect.
        """
        from websockets.asyncio.server import serve

        logging.getLogger("websockets").setLevel(logging.CRITICAL)  # it logs a traceback of every broken handshake
        async with (
            self._batcher.running(),
            serve(
                self._handle,
                host,
                port,
                compression=None,
                max_size=MAX_MESSAGE,
                process_request=self._admit,
                origins=[None],  # a web page of another origin must not reach a server on the reader's machine
            ) as server,
        ):
            ready(next(iter(server.sockets)).getsockname()[1])
            await stop.wait()
            self._batcher.refuse_all(ValueError("the server ends"))  # closing waits for the answers

    def _admit(self, connection: ServerConnection, request: HttpRequest) -> Response | None:
        """Answer the health check, and refuse a client without the token."""
        if request.path == "/healthz" and self._batcher.busy_s > CALL_S:
            return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, "the policy does not answer\n")
        if request.path == "/healthz":
            return connection.respond(HTTPStatus.OK, "OK\n")
        if self._token is None:
            return None
        headers = request.headers.get_all("Authorization")
        scheme, _, token = headers[0].partition(" ") if len(headers) == 1 else ("", "", "")
        if scheme.lower() in ("bearer", "api-key") and is_token(token, self._token):
            return None
        return connection.respond(HTTPStatus.UNAUTHORIZED, "send the token: Authorization: Bearer TOKEN\n")

    async def _handle(self, connection: ServerConnection) -> None:
        from websockets.exceptions import ConnectionClosed

        calls, seconds = 0, 0.0
        with suppress(ConnectionClosed):
            await connection.send(pack(self.metadata))
            async for message in connection:
                start = time.perf_counter()
                try:
                    answer = await self._answer(message, calls)
                except Exception as error:
                    await self._refuse(connection, error)
                    return
                if calls:
                    answer["server_timing"]["prev_total_ms"] = 1000 * seconds
                await connection.send(pack(answer))
                calls, seconds = calls + 1, time.perf_counter() - start

    async def _answer(self, message: bytes | str, call: int) -> dict[str, Any]:
        if isinstance(message, str):
            raise ValueError("a request is a binary message, not a text")
        observation, seed, sampling = read_request(unpack(message), self._sampling, self._policy.check_sampling)
        self._limits.check(observation)
        observation = add_memory(self._policy, observation)  # of a request without one, as at the start of an episode
        if (busy_s := self._batcher.busy_s) > CALL_S:
            raise ValueError(
                f"the policy is busy with an earlier request for more than {CALL_S:g} s ({busy_s:.0f} s); try again "
                "later, and restart the server if that goes on"
            )
        draws = derive_seed("act", self._seed, call, 0) if seed is None else seed  # that of mmrl.load_policy(...).act
        try:
            served = await asyncio.wait_for(self._batcher.ask(Request(observation, draws), sampling), CALL_S)
        except TimeoutError as error:
            raise ValueError(f"the policy has not answered within {CALL_S:g} s") from error
        action, memory = split_memory(self._policy, served.output)
        answer = {"actions": np.atleast_2d(np.asarray(action))} | ({} if memory is None else {MEMORY: memory})
        return {**answer, "server_timing": {"infer_ms": 1000 * served.seconds, "batch": served.rows}}

    async def _refuse(self, connection: ServerConnection, error: Exception) -> None:
        """Send the error as a text and close; an error of the program is also reported with its traceback."""
        expected = isinstance(error, ValueError) or is_user_error(error)
        text = " ".join(f"{type(error).__name__}: {error}".split())
        self._report(f"client {connection.remote_address}: {_printable(text)}")
        trace = "" if expected else "".join(traceback.format_exception(error))
        if trace and trace not in self._tracebacks and len(self._tracebacks) < _MOST_TRACEBACKS:
            self._tracebacks.add(trace)
            self._report(trace)
        await connection.send(text[:2000])
        await connection.close(_INTERNAL_ERROR, "the error is in the previous message")


def describe_policy(policy: Policy, sampling: Sampling, contract: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a client is sent when it connects: protocol, contracts, and what observations and actions are.

    Args:
        contract: of the simulator of the training.
    """
    stated = policy.contract()
    return {
        "protocol": PROTOCOL,
        "policy": stated,
        "simulator": dict(contract),
        "observations": list(policy.observation_names()),
        "action": {"chunk": policy.chunk, "dims": stated.get("action.dims")},
        "decode": sampling.decode,
    }


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text[:500])
