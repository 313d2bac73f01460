"""TCP ports of this machine."""

from __future__ import annotations

import socket


def try_port(port: int | None, host: str | None = "") -> OSError | None:
    """Why a server cannot listen on a port; None if it can."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: closed connections do not count
        try:
            probe.bind((host, port))
        except OSError as error:
            return error
    return None
