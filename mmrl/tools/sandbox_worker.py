"""The other side of `mmrl.tools.sandbox`: a bare interpreter that forks a confined child for every program.

Started as `python -I -S -B sandbox_worker.py` and needs the standard library alone. Reads one JSON job per line and
answers one JSON line each. What confines a child: limits of time, memory, files and output; no capabilities;
Landlock, so that it writes in its scratch folder alone; and a seccomp filter without sockets, processes and programs.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import select
import shutil
import signal
import struct
import sys
import tempfile
import time

# system calls by machine: sockets, processes, other programs, signals, higher limits, mounts, and changes of files that
# Landlock does not cover (modes, owners, times, attributes, lengths)
DENIED = {
    "x86_64": (
        0xC000003E,
        (41, 42, 43, 49, 50, 53, 288, 425, 57, 58, 59, 322, 62, 101, 160, 302, 155, 161, 165)
        + (76, 90, 91, 92, 93, 94, 132, 188, 189, 190, 197, 198, 199, 235, 260, 261, 268, 280, 452),
    ),
    "aarch64": (
        0xC00000B7,
        (198, 199, 200, 201, 202, 203, 242, 425, 221, 281, 129, 117, 164, 261, 41, 51, 40)
        + (5, 6, 7, 14, 15, 16, 45, 52, 53, 54, 55, 88, 452),
    ),
}
CLONE3 = 435  # said to be missing, so that threads are made with clone, whose flags a filter can read
CLONE = {"x86_64": 56, "aarch64": 220}
THREAD = 0x00010000
_libc = ctypes.CDLL(None, use_errno=True)


def confine(scratch: str, limits: dict) -> None:
    """In the child, for good."""
    megabyte = 1 << 20
    cpu = int(limits["cpu_seconds"])
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))  # a signal that has a name first
    for kind, value in (
        (resource.RLIMIT_AS, int(limits["memory_mb"]) * megabyte),
        (resource.RLIMIT_FSIZE, int(limits["files_mb"]) * megabyte),
        (resource.RLIMIT_NOFILE, 32),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (value, value))
    os.environ.clear()
    os.environ.update(HOME=scratch, TMPDIR=scratch, PATH="/nowhere")
    os.chdir(scratch)
    written_here_alone(scratch)
    without_powers()
    without_calls()


def without_powers() -> None:
    """No capabilities, whoever runs it. The user stays the same: an interpreter may lie where no other may read."""
    for power in range(64):
        _libc.prctl(24, power, 0, 0, 0)
    header, nothing = struct.pack("=Ii", 0x20080522, 0), bytes(24)
    call = {"x86_64": 126, "aarch64": 91}.get(platform.machine())
    if call is None or _libc.syscall(call, header, nothing) != 0:
        raise OSError("capabilities could not be given up")


def written_here_alone(folder: str) -> None:
    """Landlock: changes of files outside the folder are refused."""
    changes = sum(1 << bit for bit in (1, 4, 5, 6, 7, 8, 9, 10, 11, 12))
    handled = struct.pack("Q", changes)
    rules = _libc.syscall(444, handled, len(handled), 0)
    if rules < 0:
        raise OSError("this kernel has no Landlock, which keeps programs in their folder (Linux 5.13 or newer)")
    place = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    _unprivileged()
    added = _libc.syscall(445, rules, 1, struct.pack("=Qi", changes, place), 0)
    if added < 0 or _libc.syscall(446, rules, 0) < 0:
        raise OSError(f"Landlock could not be set: {os.strerror(ctypes.get_errno())}")
    os.close(place)
    os.close(rules)


def without_calls() -> None:
    """seccomp: no sockets, no further processes, no other programs, no signals to others, no higher limits."""
    machine = platform.machine()
    if machine not in DENIED:
        raise OSError(f"programs cannot be confined on {machine}: only on {', '.join(DENIED)}")
    arch, calls = DENIED[machine]
    load, equal, bits, give = 0x20, 0x15, 0x45, 0x06  # of classic BPF: load a word, jump if equal, if bits, return
    allow, refuse = 0x7FFF0000, 0x00050001  # SECCOMP_RET_ERRNO with EPERM
    code = [(load, 0, 0, 4), (equal, 1, 0, arch), (give, 0, 0, 0x80000000), (load, 0, 0, 0)]
    code += [(bits, 0, 1, 0x40000000), (give, 0, 0, refuse)]  # the other numbering of x86
    code += [(equal, 0, 1, CLONE3), (give, 0, 0, 0x00050026)]  # ENOSYS
    for call in calls:
        code += [(equal, 0, 1, call), (give, 0, 0, refuse)]
    # threads may be made and processes not
    code += [
        (equal, 0, 4, CLONE[machine]),
        (load, 0, 0, 16),
        (bits, 1, 0, THREAD),
        (give, 0, 0, refuse),
        (load, 0, 0, 0),
    ]
    code += [(give, 0, 0, allow)]
    packed = b"".join(struct.pack("HBBI", *line) for line in code)
    buffer = ctypes.create_string_buffer(packed)

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]

    program = Program(len(code), ctypes.cast(buffer, ctypes.c_void_p))
    _unprivileged()
    if _libc.prctl(22, 2, ctypes.byref(program), 0, 0) != 0:
        raise OSError(f"seccomp could not be set: {os.strerror(ctypes.get_errno())}")


def _unprivileged() -> None:
    if _libc.prctl(38, 1, 0, 0, 0) != 0:
        raise OSError("PR_SET_NO_NEW_PRIVS is not to be had")


def child(job: dict, scratch: str, out: int, report: int) -> None:
    """Never returns. One byte on `report` says what went wrong before the program was begun, or how it ended."""
    word = b"confine:"
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        confine(scratch, job["limits"])
        word = b"raised:"
        exec(compile(job["source"], "program", "exec"), {"__name__": "__main__"})
        sys.stdout.flush()
        os.write(report, b"ok:")
    except MemoryError:
        os.write(report, b"out_of_memory:")
    except BaseException as error:
        if isinstance(error, SystemExit) and not error.code and word == b"raised:":
            sys.stdout.flush()
            os.write(report, b"ok:")
        else:
            os.write(report, word + f"{type(error).__name__}: {error}".encode(errors="replace")[:500])
    finally:
        os._exit(0)


def run(job: dict) -> dict:
    """One program, from its folder to its end."""
    limits = job["limits"]
    scratch = tempfile.mkdtemp(prefix="mmrl-run-")
    out, out_child = os.pipe()
    report, report_child = os.pipe()
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.close(out)
        os.close(report)
        child(job, scratch, out_child, report_child)
    os.close(out_child)
    os.close(report_child)
    said, words = {out: b"", report: b""}, ""
    open_ends, most = {out, report}, int(limits["output"])
    while open_ends:
        left = began + limits["seconds"] - time.monotonic()
        ready = select.select(list(open_ends), [], [], max(left, 0))[0] if left > 0 else []
        if not ready:
            words = "timed_out:"
            break
        for end in ready:
            piece = os.read(end, 1 << 16)
            if not piece:
                open_ends.discard(end)
            said[end] += piece
        if len(said[out]) > most:
            words = "too_long:"
            break
    os.kill(pid, signal.SIGKILL)  # it has no children
    _, status = os.waitpid(pid, 0)
    os.close(out)
    os.close(report)
    shutil.rmtree(scratch, ignore_errors=True)
    if not words and os.WIFSIGNALED(status) and not said[report]:
        words = "timed_out:" if os.WTERMSIG(status) == signal.SIGXCPU else f"killed:signal {os.WTERMSIG(status)}"
    words = words or said[report].decode(errors="replace")
    outcome, _, reason = words.partition(":")
    try:
        text = said[out][:most].decode()
    except UnicodeDecodeError:
        text, outcome = "", "not_text" if outcome == "ok" else outcome
    return {"outcome": outcome or "killed", "output": text, "reason": reason}


def main() -> None:
    """Serve until the other side is gone."""
    for line in sys.stdin:
        sys.stdout.write(json.dumps(run(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
