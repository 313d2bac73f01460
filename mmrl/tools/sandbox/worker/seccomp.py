"""seccomp filter of system calls: those in `allowed` are allowed, every other one fails with EPERM."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from itertools import pairwise

from mmrl.tools.sandbox.worker import allowed
from mmrl.tools.sandbox.worker.system import machine, number, prctl

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# classic BPF: load a word of the call's data; jump where the word equals, or has one of some bits; mask it; return
_LOAD, _EQUAL, _AT_LEAST, _BITS, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOWED, _REFUSED, _MISSING, _KILLED = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000  # EPERM, ENOSYS
_TRUNCATE, _ACCESS = 0o1000, 0o3  # O_TRUNC and O_ACCMODE, of both machines
_OWNER = 0o700
_GROUP = 16  # system calls
_PROCESS = 0x6D6D726C  # placeholder for the process id of the program

Instruction = tuple[int, int, int, int]  # operation, jump where true, jump where false, value
_ALLOW: Instruction = (_RETURN, 0, 0, _ALLOWED)
_REFUSE: Instruction = (_RETURN, 0, 0, _REFUSED)


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]


def build_filter() -> bytes:
    """Build the filter for a program whose process id is not known yet; `restrict_calls` inserts it."""
    code: list[Instruction] = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, ARCHITECTURES[machine()]), (_RETURN, 0, 0, _KILLED)]
    code.append((_LOAD, 0, 0, 0))
    cases = sorted(_cases())
    # the kernel evaluates a new filter for every call number, so one comparison skips a whole group
    groups = [cases[start : start + _GROUP] for start in range(0, len(cases), _GROUP)]
    for group, following in pairwise(groups):
        body = [step for syscall, steps in group for step in ((_EQUAL, 0, len(steps), syscall), *steps)]
        code += [(_AT_LEAST, len(body) + 1, 0, following[0][0]), *body, _REFUSE]
    code += [step for syscall, steps in groups[-1] for step in ((_EQUAL, 0, len(steps), syscall), *steps)]
    return b"".join(struct.pack("HBBI", *step) for step in [*code, _REFUSE])


def _cases() -> Iterator[tuple[int, list[Instruction]]]:
    """List the system calls of this machine with their instructions. Every path through these returns."""
    bodies: dict[str, list[Instruction]] = {name: [_ALLOW] for name in allowed.ALWAYS}
    for name, (index, values) in allowed.VALUES.items():
        bodies[name] = [_argument(index), *_any_of(values), _REFUSE]
    for name in allowed.OWN_PROCESS:
        bodies[name] = [_argument(0), *_any_of((_PROCESS,)), _REFUSE]
    for name, index in allowed.MODES.items():
        bodies[name] = [_argument(index), (_AND, 0, 0, _OWNER), *_any_of((_OWNER,)), _REFUSE]
    for name, index in allowed.OPEN.items():
        bodies[name] = _check_open(index)
    # a limit may be read, of the program itself: the pointer to a new one has no bit set in either half
    nothing = [step for high in (0, 1) for step in (_argument(2, high), (_EQUAL, 1, 0, 0), _REFUSE)]
    bodies[allowed.LIMITS] = [*nothing, _argument(0), *_any_of((0, _PROCESS)), _REFUSE]
    for name in allowed.MISSING:
        bodies[name] = [(_RETURN, 0, 0, _MISSING)]
    for name, body in bodies.items():
        syscall = number(name)
        if syscall is not None:
            yield syscall, body


def _argument(index: int, high: int = 0) -> Instruction:
    """Load one half of an argument; the lower half is first, because both machines are little-endian."""
    return (_LOAD, 0, 0, 16 + 8 * index + 4 * high)


def _any_of(values: tuple[int, ...]) -> list[Instruction]:
    return [step for value in values for step in ((_EQUAL, 0, 1, value), _ALLOW)]


def _check_open(index: int) -> list[Instruction]:
    """Check the flags of open.

    Access mode 3 opens a device for ioctl only and needs no Landlock right; truncation needs a mode that writes, which
    Landlock controls in every version.
    """
    return [
        _argument(index),
        (_AND, 0, 0, _ACCESS),
        (_EQUAL, 0, 1, 3),
        _REFUSE,
        (_EQUAL, 0, 3, 0),
        _argument(index),
        (_BITS, 0, 1, _TRUNCATE),
        _REFUSE,
        _ALLOW,
    ]


def restrict_calls(template: bytes, process: int) -> None:
    """Install the filter of `build_filter` in this process, whose id is given, irreversibly. Raises OSError."""
    code = template.replace(struct.pack("I", _PROCESS), struct.pack("I", process))
    program = _Program(len(code) // 8, ctypes.cast(ctypes.c_char_p(code), ctypes.c_void_p))
    try:
        prctl(22, ctypes.c_ulong(2), ctypes.byref(program))  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
    except OSError as error:
        raise OSError(f"seccomp: {error}; the kernel needs CONFIG_SECCOMP_FILTER") from error
