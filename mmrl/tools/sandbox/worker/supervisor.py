"""Supervisor process of one program: reads the request, forks the program's process, and reports its result."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import socket
import time
from dataclasses import dataclass, field
from typing import Any

from mmrl.tools.sandbox.worker.messages import read_message, write_message
from mmrl.tools.sandbox.worker.place import Place
from mmrl.tools.sandbox.worker.program import REASON, run_program
from mmrl.tools.sandbox.worker.scratch import FolderScratch, MountedScratch, measure_folder

_SETUP = 20.0  # time limit of confining a program's process, seconds
_PIECE = 1 << 16
_TICK = 0.01  # seconds between two checks of what no event reports


@dataclass
class Watched:
    """Running program and the output read so far."""

    pid: int
    ends: dict[str, int]
    read: dict[str, bytearray] = field(default_factory=lambda: {"out": bytearray(), "reason": bytearray()})
    verdict: str | None = None  # reason why the supervisor ended it

    def take(self, name: str, most: int) -> bool:
        """Read what a pipe has; return whether more may follow: not above `most` bytes, and not at its end."""
        try:
            piece = os.read(self.ends[name], _PIECE)
        except BlockingIOError:  # the pipe is empty, and a process may still write
            piece = b""
        self.read[name] += piece
        return bool(piece) and len(self.read[name]) <= most


def supervise(request: int, reply: int, place: Place) -> None:
    """Serve one request. Raises OSError, after the reply, if the scratch folder could not be emptied."""
    job = json.loads(read_message(request))
    ran = run(job, place, request)
    failed: OSError | None = None
    try:
        place.scratch.end()
    except OSError as error:
        failed = error
    write_message(reply, json.dumps(ran).encode())
    if failed is not None:
        raise failed


def run(job: dict[str, Any], place: Place, trainer: int) -> dict[str, Any]:
    """Run one program; return its result, or {"down": reason} if it could not be started.

    `trainer` is a pipe whose other end closes when the caller stops waiting; then the program is ended.
    """
    limits, scratch, parent = job["limits"], place.scratch, os.getpid()
    scratch.begin(int(limits["files_mb"]), int(limits["files"]))
    pipes = {name: open_one_way() for name in ("out", "reason", "setup")}
    pid = os.fork()
    if pid == 0:
        run_program(job, place, {name: ends[1] for name, ends in pipes.items()}, parent)
    for _, writing in pipes.values():
        os.close(writing)
    try:
        word = _read_setup(pipes["setup"][0])
        watched = Watched(pid, {name: pipes[name][0] for name in ("out", "reason")})
        if word[:1] == b"1":
            _watch(watched, limits, scratch, trainer)
    finally:
        os.kill(pid, signal.SIGKILL)  # it has no children
        _, status, used = os.wait4(pid, 0)
    if word[:1] != b"1":
        return {"down": word[1:].decode(errors="replace") or "the program's process ended before it was confined"}
    _read_rest(watched, limits)
    return _report(watched, limits, status, used.ru_utime + used.ru_stime) | {"missing": json.loads(word[1:])}


def open_one_way() -> tuple[int, int]:
    """Open a pair of sockets to read from the first and write to the second. Unlike an end of a pipe, an end of a pair
    cannot be opened again by its name in /proc, so that a program cannot read what it has printed."""
    reading, writing = socket.socketpair()
    reading.shutdown(socket.SHUT_WR)
    return reading.detach(), writing.detach()


def _read_setup(end: int) -> bytes:
    """Read the message of a program's process from before the program starts; until then only mmrl's code has run."""
    late, message = time.monotonic() + _SETUP, b""
    while (remaining := late - time.monotonic()) > 0 and select.select([end], [], [], remaining)[0]:
        piece = os.read(end, _PIECE)
        if not piece:
            return message
        message += piece
    return b"0it took too long to confine a process"


def _watch(watched: Watched, limits: dict[str, Any], scratch: MountedScratch | FolderScratch, trainer: int) -> None:
    """Watch the program's process until it ends or reaches a limit."""
    late = time.monotonic() + limits["seconds"]
    allowed = _list_limits(limits)
    events = select.poll()
    names = {end: name for name, end in watched.ends.items()}
    for end in names:
        os.set_blocking(end, False)
        events.register(end, select.POLLIN)
    events.register(trainer, 0)  # only the end of the pipe
    pidfd = _open_process(watched.pid)
    if pidfd is not None:
        events.register(pidfd, select.POLLIN)
    looked = 0.0  # when and for how long the folder was measured last
    took = 0.0
    while True:
        now = time.monotonic()
        if now >= late:
            watched.verdict = "timed_out"
            return
        if scratch.watched and now - looked >= max(_TICK, 5 * took):
            if not _fits(scratch.folder, limits):
                watched.verdict = "out_of_disk"
                return
            looked = time.monotonic()
            took = looked - now
        wait = min(late - now, _TICK if scratch.watched or pidfd is None else late - now)
        ready = dict(events.poll(1000 * wait + 1))
        for end, name in names.items():
            if end in ready and not watched.take(name, allowed[name]):
                events.unregister(end)
                if name == "out" and len(watched.read["out"]) > allowed["out"]:
                    watched.verdict = "too_long"
                    return
        if trainer in ready:
            watched.verdict = "timed_out"
            return
        if pidfd in ready or (pidfd is None and os.waitid(os.P_PID, watched.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)):
            return


def _read_rest(watched: Watched, limits: dict[str, Any]) -> None:
    """Read what an ended process left in its pipes; more output than the limit is "too_long"."""
    allowed = _list_limits(limits)
    for name, most in allowed.items():
        while len(watched.read[name]) <= most and watched.take(name, most):
            pass
    if watched.verdict is None and len(watched.read["out"]) > allowed["out"]:
        watched.verdict = "too_long"


def _list_limits(limits: dict[str, Any]) -> dict[str, int]:
    """Return the maximum bytes that are read from each pipe."""
    return {"out": int(limits["output"]), "reason": REASON}


def _open_process(pid: int) -> int | None:
    """Return a file descriptor to wait for the process's end (pidfd); None if this machine has none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _fits(folder: str, limits: dict[str, Any]) -> bool:
    try:
        size, files = measure_folder(folder, int(limits["files"]))
    except OSError:
        return False
    return files <= limits["files"] and size <= limits["files_mb"] << 20


def _report(watched: Watched, limits: dict[str, Any], status: int, cpu: float) -> dict[str, Any]:
    """Build the result from the process's exit status; the program's own report is used only as the reason."""
    report = "".join(
        c if c.isprintable() else "\ufffd" for c in watched.read["reason"][:REASON].decode(errors="replace")
    )
    reason = ""
    if watched.verdict:
        outcome = watched.verdict
    elif os.WIFSIGNALED(status):
        killer = os.WTERMSIG(status)
        # the kernel enforces the limit on time counted in ticks, which differs from the time that it reports
        spent = killer in (signal.SIGKILL, signal.SIGXCPU) and cpu > 0.75 * limits["cpu_seconds"]
        outcome, reason = ("timed_out", "") if spent else ("killed", f"signal {killer}")
    elif os.WEXITSTATUS(status) == 0:
        outcome = "ok"
    else:
        outcome = "out_of_memory" if report.startswith("MemoryError") else "raised"
        reason = report or f"exit status {os.WEXITSTATUS(status)}"
    try:
        text = bytes(watched.read["out"][: int(limits["output"])]).decode()
    except UnicodeDecodeError:
        text, outcome = "", "not_text" if outcome in ("ok", "too_long") else outcome
    return {"outcome": outcome, "output": text, "reason": reason}


def raise_open_files() -> None:
    """Raise the limit of open files to this user's maximum, since measuring a scratch folder opens its folders."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
