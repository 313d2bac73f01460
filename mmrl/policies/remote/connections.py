"""Connections to a policy server, which are opened again when the server comes back."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mmrl.core.errors import ConfigError
from mmrl.policies.remote.wire import WireError, unpack

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

_MAX_ANSWER = 64 * 2**20  # bytes
_MAX_LOSSES = 3  # times that a message is sent: one that ends the server must not be sent forever
_PAUSE = 0.25  # seconds between two tries to connect


class Connections:
    """Ask a policy server several things at once, one over each connection.

    Args:
        url: ws://host:port or wss://host:port.
        count: most connections.
        token: sent as "Authorization: Api-Key TOKEN"; None sends none.
        timeout_s: longest wait for an answer, seconds.
        reconnect_s: how long a server that does not answer is tried again, seconds.
    """

    def __init__(self, url: str, count: int, token: str | None, timeout_s: float, reconnect_s: float):
        self.url, self.count, self.timeout_s, self.reconnect_s = url, count, timeout_s, reconnect_s
        self._token = token
        self._open: list[ClientConnection] = []
        self.metadata: dict[str, Any] | None = None  # what the server sent when it was first connected

    def connect(self) -> dict[str, Any]:
        """Open the first connection if there is none, and return the metadata that the server sent."""
        if self.metadata is None:
            self._connections(1)
        assert self.metadata is not None
        return self.metadata

    def ask(self, messages: Sequence[bytes]) -> list[Any]:
        """Send the messages and return the decoded answers, in order.

        Raises:
            ConnectionError: the server is not there, and did not come back within `reconnect_s`.
            RuntimeError: the server answered with an error.
        """
        answers: list[Any] = []
        for start in range(0, len(messages), self.count):
            answers += self._ask_at_once(messages[start : start + self.count])
        return answers

    def close(self) -> None:
        """Close all connections."""
        for connection in self._open:
            connection.socket.close()  # without waiting for the server's farewell
        self._open = []

    def _ask_at_once(self, messages: Sequence[bytes]) -> list[Any]:
        from websockets.exceptions import ConnectionClosed

        answers: dict[int, Any] = {}
        lost: Exception | None = None
        for _ in range(_MAX_LOSSES):
            waiting = [i for i in range(len(messages)) if i not in answers]
            connections = self._connections(len(waiting))
            try:
                for connection, i in zip(connections, waiting):
                    connection.send(messages[i])
                for connection, i in zip(connections, waiting):
                    answers[i] = self._read(connection.recv(timeout=self.timeout_s))
                return [answers[i] for i in range(len(messages))]
            except (ConnectionClosed, OSError) as error:  # TimeoutError is an OSError
                self.close()
                lost = error
                _say(f"policy.url={self.url}: lost the server ({_reason(error)}); asking again when it is back")
        raise ConnectionError(
            f"policy.url={self.url}: the server was lost {_MAX_LOSSES} times over the same observation "
            f"({_reason(lost)}); look at the server's own messages"
        )

    def _read(self, message: bytes | str) -> Any:
        """Decode an answer; a text is an error of the server."""
        if isinstance(message, str):
            self.close()
            raise RuntimeError(f"policy.url={self.url}: the server answered with an error: {_last_line(message)}")
        try:
            return unpack(message)
        except WireError as error:
            self.close()
            raise RuntimeError(f"policy.url={self.url}: the server's answer cannot be read: {error}") from error

    def _connections(self, count: int) -> list[ClientConnection]:
        """Return that many open connections; new ones are opened as needed."""
        while len(self._open) < count:
            connection, metadata = self._wait_for_server()
            self._open.append(connection)
            if self.metadata is None:
                self.metadata = metadata
            elif self.metadata != metadata:
                self.close()
                raise ConfigError(
                    f"policy.url={self.url}: the server came back with another policy or other settings; evaluate from "
                    "the start"
                )
        return self._open[:count]

    def _wait_for_server(self) -> tuple[ClientConnection, dict[str, Any]]:
        """Connect and receive the metadata, again and again until `reconnect_s` have passed."""
        from websockets.exceptions import InvalidStatus, WebSocketException

        start, reported = time.monotonic(), False
        while True:
            try:
                connection = self._connect()
                if reported:
                    _say(f"policy.url={self.url}: connected after {time.monotonic() - start:.1f} s")
                return connection
            except (OSError, WebSocketException) as error:
                if isinstance(error, InvalidStatus) and error.response.status_code in (401, 403):
                    raise ConfigError(
                        f"policy.url={self.url}: the server refuses the token; give policy.token_file=FILE or the "
                        "environment variable MMRL_SERVE_TOKEN"
                    ) from error
                if time.monotonic() - start >= self.reconnect_s:
                    raise ConnectionError(
                        f"policy.url={self.url}: no server for {self.reconnect_s:g} s ({_reason(error)}); start it "
                        "with `mmrl serve RUN_FOLDER`, or set policy.reconnect_s"
                    ) from error
                if not reported:
                    _say(f"policy.url={self.url}: no server ({_reason(error)}); trying for {self.reconnect_s:g} s")
                reported = True
                time.sleep(_PAUSE)

    def _connect(self) -> tuple[ClientConnection, dict[str, Any]]:
        from websockets.sync.client import connect

        headers = {"Authorization": f"Api-Key {self._token}"} if self._token else None
        connection = connect(
            self.url,
            compression=None,
            max_size=_MAX_ANSWER,
            additional_headers=headers,
            ping_interval=None,  # a server that compiles its network answers no ping for minutes
            close_timeout=1,
        )
        metadata = self._read(connection.recv(timeout=self.timeout_s))
        if not isinstance(metadata, dict):
            connection.socket.close()
            raise ConfigError(
                f"policy.url={self.url}: the server's first message is {type(metadata).__name__}, not a map of its "
                "metadata; is it a policy server?"
            )
        return connection, metadata

    def __getstate__(self) -> dict[str, Any]:
        """A copy in another process, or of the policy, opens connections of its own."""
        return {**self.__dict__, "_open": []}


def _reason(error: BaseException | None) -> str:
    return _last_line(str(error)) or type(error).__name__


def _last_line(text: str) -> str:
    """The last line of an error, which names it in a traceback; at most 500 printable characters."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "".join(c if c.isprintable() else "?" for c in lines[-1])[:500] if lines else ""


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
