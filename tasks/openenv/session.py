"""A session of an OpenEnv server: one environment behind one WebSocket."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from mmrl.core.installation.optional_packages import import_optional

MOST_BYTES = 8 * 1024 * 1024
"""Of one message of a server."""


class InvalidActionError(Exception):
    """The server does not take an action; the message says why."""


class Session:
    """A connection to an environment of a server, which lasts for its episodes.

    Args:
        url: of the server, http or https.
        timeout_s: seconds that an answer may take.

    Raises:
        RuntimeError: the server cannot be reached.
    """

    def __init__(self, url: str, timeout_s: float):
        client = import_optional("websockets.sync.client", "task 'openenv'")
        self._closed: Any = import_optional("websockets.exceptions", "task 'openenv'").ConnectionClosed
        address, self._timeout_s = urlsplit(url), timeout_s
        scheme = "wss" if address.scheme == "https" else "ws"
        options = {"proxy": None} if address.hostname in ("127.0.0.1", "localhost", "::1") else {}
        try:
            self._socket = client.connect(
                f"{scheme}://{address.netloc}{address.path.rstrip('/')}/ws",
                open_timeout=timeout_s,
                max_size=MOST_BYTES,
                **options,
            )
        except Exception as error:  # an error of the socket, of the handshake or of the time
            raise RuntimeError(f"the server of OpenEnv at {url} cannot be reached: {error}") from error

    def ask(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        """Send a reset or a step and return the observation with reward and end.

        Raises:
            InvalidActionError: the action does not fit the environment's schema.
            RuntimeError: the environment raised, all sessions are taken, or the connection broke.
        """
        try:
            with suppress(self._closed):  # a server that is full has closed the connection, and its reason waits here
                self._socket.send(json.dumps({"type": kind, "data": data}))
            reply = json.loads(self._socket.recv(timeout=self._timeout_s))
        except Exception as error:
            self.close()  # a late answer would be taken for that of the next request
            raise RuntimeError(
                f"the OpenEnv session broke in a {kind}: {type(error).__name__}: {error or 'no answer in time'}"
            ) from error
        content = reply.get("data", {})
        if reply.get("type") == "observation":
            return content
        code, message = content.get("code"), content.get("message")
        if code == "VALIDATION_ERROR" and kind == "step":
            raise InvalidActionError("; ".join(_write_error(entry) for entry in content.get("errors", ())) or message)
        self.close()
        if code == "CAPACITY_REACHED":
            raise RuntimeError(
                f"the OpenEnv server has all its {content.get('max_sessions')} sessions in use: set "
                "rollout.max_concurrent lower, which holds for evaluations too, or max_concurrent_envs of its "
                "create_app higher"
            )
        raise RuntimeError(f"the OpenEnv environment answered a {kind} with {code}: {message}")

    def close(self) -> None:
        """End the session; the server drops its environment."""
        self._socket.close()


def _write_error(entry: dict[str, Any]) -> str:
    """Write one entry of the server's list of wrong fields."""
    place = ".".join(str(part) for part in entry.get("loc", ()))
    return f"{place}: {entry.get('msg')}" if place else str(entry.get("msg"))
