"""Confine a process before it runs a program."""

from __future__ import annotations

import ctypes
import os
import resource
import struct
import sys
from collections.abc import Callable
from typing import Any

from mmrl.tools.sandbox.worker.landlock import restrict_files
from mmrl.tools.sandbox.worker.place import Place
from mmrl.tools.sandbox.worker.seccomp import restrict_calls
from mmrl.tools.sandbox.worker.system import call, prctl

_MEGABYTE = 1 << 20
_OPEN_FILES = 32


def confine(limits: dict[str, Any], place: Place) -> list[str]:
    """Confine this process irreversibly.

    Raises OSError if a part of the confinement is unavailable; an unsafe place returns the missing parts instead.
    """
    missing: list[str] = []
    steps: list[Callable[[], None]] = [
        lambda: limit_resources(limits),
        lambda: prctl(38, ctypes.c_ulong(1)),  # PR_SET_NO_NEW_PRIVS
        give_up_capabilities,
    ]
    rules, calls = place.rules, place.calls
    if rules is not None:
        steps.append(lambda: restrict_files(rules))
    if calls is not None:
        steps.append(lambda: restrict_calls(calls, os.getpid()))
    for step in steps:
        try:
            step()
        except Exception as error:
            if not place.unsafe:
                raise
            missing.append(str(error))
    return missing


def limit_resources(limits: dict[str, Any]) -> None:
    """Set the kernel's resource limits. A process that exceeds its CPU time is killed at once."""
    seconds, memory, files = int(limits["cpu_seconds"]), int(limits["memory_mb"]), int(limits["files_mb"])
    for kind, value in (
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_AS, memory * _MEGABYTE),
        (resource.RLIMIT_FSIZE, files * _MEGABYTE),
        (resource.RLIMIT_NOFILE, _OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        _, most = resource.getrlimit(kind)
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(kind, (value, value))


def give_up_capabilities() -> None:
    """Drop all capabilities irreversibly. Another user id might lack access to the interpreter, so it is kept."""
    header, nothing = struct.pack("=Ii", 0x20080522, 0), bytes(24)
    call("capset", header, nothing)


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent, whose process id is given, ends."""
    if sys.platform == "linux":
        prctl(1, ctypes.c_ulong(9))  # PR_SET_PDEATHSIG, SIGKILL
    if os.getppid() != parent:
        os._exit(1)
