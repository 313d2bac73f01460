"""Server of an OpenEnv environment, run by the Python that has the package; it imports nothing of mmrl.

`python host.py MODULE:APP` serves the application on a free port of this machine, writes the port as the first line of
stdout and ends with its stdin.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
import threading


def end_with_stdin() -> None:
    """Wait until the trainer has ended or closed the pipe."""
    sys.stdin.read()
    os._exit(0)


def main(target: str) -> None:
    """Serve an application.

    Args:
        target: MODULE:NAME of the application; NAME is `app` where it is missing.
    """
    import uvicorn

    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the environment prints is no reply
    module, _, name = target.partition(":")
    app = getattr(importlib.import_module(module), name or "app")
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)  # requests wait here until the application has started
    print(listener.getsockname()[1], file=replies, flush=True)
    threading.Thread(target=end_with_stdin, daemon=True).start()
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main(*sys.argv[1:])
