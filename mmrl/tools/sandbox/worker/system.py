"""Make system calls by name that the standard library has no function for."""

from __future__ import annotations

import ctypes
import os
import platform

from mmrl.tools.sandbox.worker.syscalls import NUMBERS

MACHINES = {"x86_64": 0, "aarch64": 1}
_libc = ctypes.CDLL(None, use_errno=True)


def machine() -> str:
    """Return the processor's name. Raises OSError if its system call numbers are unknown."""
    name = platform.machine()
    if name not in MACHINES:
        raise OSError(f"seccomp: system calls are known for {' and '.join(MACHINES)}, and this machine is {name}")
    return name


def number(name: str) -> int | None:
    """Return the number of a system call on this machine; None if the machine does not have it."""
    return NUMBERS[name][MACHINES[machine()]]


def call(name: str, *arguments: object) -> int:
    """Make a system call. Raises OSError with its name if it fails."""
    return _check_result(_libc.syscall(number(name), *arguments), name)


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """mount(2). Raises OSError."""
    words = (source.encode(), target.encode(), kind and kind.encode(), ctypes.c_ulong(flags), options.encode() or None)
    _check_result(_libc.mount(*words), f"mount {target}")


def unmount(target: str) -> None:
    """umount2(2), lazily: the mount is hidden at once and removed when it is no longer in use. Raises OSError."""
    _check_result(_libc.umount2(target.encode(), 2), f"umount {target}")


def unshare(flags: int) -> None:
    """unshare(2). Raises OSError."""
    _check_result(_libc.unshare(flags), "unshare")


def prctl(option: int, *values: object) -> None:
    """prctl(2). Raises OSError."""
    arguments = [*values, *([ctypes.c_ulong(0)] * (4 - len(values)))]
    _check_result(_libc.prctl(option, *arguments), f"prctl {option}")


def _check_result(result: int, name: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result
