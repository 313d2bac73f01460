"""Guard process that ends a launched server when its trainer ends.

A killed trainer cannot stop its server, and a killed `vllm serve` leaves its engine and workers running. So the server
is a child of this process, in a process group of their own. The group is ended when the server ends or when the trainer
has gone: standard input is closed, or the parent process has changed.

The file is run as a script and needs only the standard library. The command is the first line of standard input, as
JSON, so that it does not appear in the arguments of this process.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time

GRACE = 10.0  # seconds between SIGTERM and SIGKILL to the group
LOOK = 0.2  # seconds between two checks of parent and child
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def main() -> None:
    """Run the command of the first line until it ends or the trainer has gone, then end the group."""
    trainer = os.getppid()
    line = b""
    while not line.endswith(b"\n"):
        read = os.read(0, 65536)
        if not read:
            return
        line += read
    for number in (signal.SIGTERM, signal.SIGINT):  # this process belongs to the group that it sends SIGTERM to
        signal.signal(number, lambda *_: None)  # a handler, since the server would inherit SIG_IGN
    adopt_orphans()
    server = subprocess.Popen(json.loads(line), stdin=subprocess.DEVNULL)
    while server.poll() is None and os.getppid() == trainer:
        readable, _, _ = select.select([0], [], [], LOOK)
        if readable and not os.read(0, 65536):
            break
    if server.returncode is not None:
        print(f"the server ended with status {server.returncode}", file=sys.stderr, flush=True)
    os.killpg(0, signal.SIGTERM)
    until = time.monotonic() + GRACE
    while time.monotonic() < until:
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            return  # no process is left
        time.sleep(0.05)
    os.killpg(0, signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of orphaned grandchildren, to wait for them; Linux only."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


if __name__ == "__main__":
    main()
