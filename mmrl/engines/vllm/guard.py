"""Stands between a trainer and a server that it launched, so that the server never outlives the trainer.

A trainer that is killed cannot stop anything, and a killed `vllm serve` leaves its engine and workers running. So the
server runs as a child of this small process, in a process group of their own. The group ends as a whole when the server
ends or when the trainer is gone: its end of our standard input is closed, or we have another parent.

It is run as a file and needs the standard library alone. The first line on its standard input is the command, as JSON;
so whoever looks for the server among the processes finds the server and not this.
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

GRACE = 10.0  # seconds between asking the group to end and ending it
LOOK = 0.2  # seconds between two looks at parent and child
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def main() -> None:
    """Run the command of the first line until it ends or the trainer is gone, then end the group."""
    trainer = os.getppid()
    line = b""
    while not line.endswith(b"\n"):
        read = os.read(0, 65536)
        if not read:
            return
        line += read
    for number in (signal.SIGTERM, signal.SIGINT):  # the first we send to the group that we belong to
        signal.signal(number, lambda *_: None)  # the server would inherit "ignored", but not a handler
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
    """Become the parent of grandchildren whose parent dies, so that we can wait for them; Linux only."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


if __name__ == "__main__":
    main()
