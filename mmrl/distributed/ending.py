"""End a worker process with all that its function started: threads, processes, daemons that left its group."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from contextlib import suppress

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_INTERVAL = 0.5  # seconds between two looks at the parent


def list_descendants(process: int) -> list[int]:
    """List the processes that descend from a process; empty where there is no /proc."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        with suppress(OSError, ValueError, IndexError), open(f"/proc/{int(name)}/stat") as file:
            children[int(file.read().rpartition(")")[2].split()[1])].append(int(name))
    descendants = list(children[process])
    for each in descendants:  # grows while it is read
        descendants += children[each]
    return descendants


def kill_tree(process: int) -> None:
    """Kill a process that leads a group, its group, and its descendants in other groups."""
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGSTOP)  # it starts no further process meanwhile
    descendants = list_descendants(process)
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    for each in descendants:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(each, signal.SIGKILL)


def adopt_orphans() -> None:
    """Make this process the parent of its descendants whose parents end, so that daemons stay its descendants."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent(parent: int) -> None:
    """Start a thread that kills this process with all that it started once its parent has gone, also while its main
    thread is in a call or waits for threads of the function."""
    threading.Thread(target=_watch, args=(parent,), daemon=True, name="end with parent").start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_INTERVAL)
    end_tree()


def end_tree() -> None:
    """Kill this process and all that it started."""
    for each in list_descendants(os.getpid()):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(each, signal.SIGKILL)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
