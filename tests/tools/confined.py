"""Processes with another user or fewer system calls than this one, and what is planted for hostile programs."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pty
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mmrl.tools.sandbox import sandbox as module
from mmrl.tools.sandbox.worker import seccomp, system
from tests.tools.hostile import Targets

# calls that a test takes away, beside those of the sandbox's own table: x86-64, aarch64
NUMBERS = {"unshare": (272, 97), "mount": (165, 40), "landlock_create_ruleset": (444, 444), "seccomp": (157, 167)}


def in_process(function: Callable[[], Any], user: int | None = None, refused: Sequence[str] = ()) -> Any:
    """What a function returns in a process of its own: as another user, with system calls refused. JSON comes back."""
    becomes = user is not None and user != os.getuid()
    if becomes and os.getuid() != 0:
        pytest.skip(f"only root can become user {user}")
    python = _interpreter(user) if becomes else sys.executable
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(_readable_copy()) if becomes else module.FOLDER
        return _fork(function, user if becomes else None, refused, python, folder)


def _fork(function: Callable[[], Any], user: int | None, refused: Sequence[str], python: str, folder: Path) -> Any:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        answer: dict[str, Any] = {"error": "it ended without a word"}
        try:
            os.close(reading)
            os.environ.pop("TMPDIR", None)
            tempfile.tempdir = "/tmp"
            sys.executable, module.FOLDER = python, folder
            if user is not None:
                os.setgroups([])
                os.setresgid(user, user, user)
                os.setresuid(user, user, user)
            refuse_calls(refused)
            answer = {"value": function()}
        except BaseException:
            answer = {"error": traceback.format_exc()}
        finally:
            with open(writing, "w") as file:
                json.dump(answer, file)
            os._exit(0)
    os.close(writing)
    with open(reading) as file:
        answer = json.load(file)
    os.waitpid(pid, 0)
    assert "error" not in answer, answer["error"]
    return answer["value"]


def _interpreter(user: int) -> str:
    """One that this user may execute."""
    for result in (
        sys.executable,
        *(shutil.which(f"python3{minor}", path="/usr/local/bin:/usr/bin") for minor in ("", ".13", ".12", ".11")),
    ):
        if result and _works(result, user):
            return result
    pytest.skip(f"there is no Python of 3.11 or newer that user {user} may execute")


def _works(python: str, user: int) -> bool:
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            os.execv(python, [python, "-I", "-c", "import sys, ctypes; sys.exit(sys.version_info < (3, 11))"])
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


@contextlib.contextmanager
def _readable_copy() -> Iterator[Path]:
    """The worker's files where every user may read them."""
    with tempfile.TemporaryDirectory(prefix="mmrl-worker-", dir="/tmp") as name:
        folder = Path(name)
        shutil.copytree(module.FOLDER / "worker", folder / "worker")
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        yield folder


def refuse_calls(names: Sequence[str]) -> None:
    """This process and all that it begins get EPERM from these system calls."""
    if not names:
        return
    index = system.MACHINES[system.machine()]
    code = [(0x20, 0, 0, 0)]
    for name in names:
        if name == "seccomp":  # prctl(PR_SET_SECCOMP)
            code += [(0x15, 0, 4, NUMBERS[name][index]), (0x20, 0, 0, 16), (0x15, 0, 1, 22), (6, 0, 0, 0x00050001)]
            code += [(0x20, 0, 0, 0)]
        else:
            code += [(0x15, 0, 1, NUMBERS[name][index]), (6, 0, 0, 0x00050001)]
    code += [(6, 0, 0, 0x7FFF0000)]
    buffer = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in code))
    program = seccomp._Program(len(code), ctypes.cast(buffer, ctypes.c_void_p))
    system.prctl(38, ctypes.c_ulong(1))
    system.prctl(22, ctypes.c_ulong(2), ctypes.byref(program))


@contextlib.contextmanager
def planted() -> Iterator[tuple[Targets, Callable[[], list[str]]]]:
    """Targets, and a function that says in words what has become of them."""
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mmrl-planted-")))
        folder = home / "folder"
        (folder / "empty").mkdir(parents=True)
        (folder / "planted.py").write_text("found = 1")
        (home / "secret").write_text("planted")
        (home / "file").write_text("untouched")
        for path in (home, folder, home / "file"):
            path.chmod(0o777 if path.is_dir() else 0o666)
        decoy = subprocess.Popen(["sleep", "600"], start_new_session=True)
        stack.callback(decoy.wait)
        stack.callback(decoy.kill)
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        server.setblocking(False)
        unix = stack.enter_context(socket.socket(socket.AF_UNIX))
        unix.bind(str(home / "socket"))
        unix.listen()
        keyboard, terminal = pty.openpty()
        stack.callback(os.close, keyboard)
        stack.callback(os.close, terminal)
        os.set_blocking(keyboard, False)
        targets = Targets(
            secret=str(home / "secret"),
            file=str(home / "file"),
            folder=str(folder),
            decoy=decoy.pid,
            trainer=os.getpid(),
            port=server.getsockname()[1],
            socket=str(home / "socket"),
            terminal=os.ttyname(terminal),
            source=str(Path(__file__)),
            package=pytest.__file__,
        )
        before = _state(home)

        def untouched() -> list[str]:
            changes = [f"{name} is now {now}" for name, now in _state(home).items() if before.get(name) != now]
            changes += [f"{name} is gone" for name in before if not (home / name).exists()]
            if decoy.poll() is not None:
                changes.append("the decoy ended")
            with contextlib.suppress(BlockingIOError):
                changes.append(f"the terminal shows {os.read(keyboard, 99)!r}")
            with contextlib.suppress(BlockingIOError):
                changes.append(f"somebody connected: {server.accept()}")
            return changes

        yield targets, untouched


def _state(home: Path) -> dict[str, list[Any]]:
    """Content, modes, owner, times and attributes of every file, and objects of System V in this machine."""
    result: dict[str, list[Any]] = {}
    for path in sorted(home.rglob("*")):
        about = path.lstat()
        content = path.read_text() if path.is_file() else ""
        result[str(path.relative_to(home))] = [
            content, about.st_mode, about.st_uid, about.st_mtime_ns, about.st_ctime_ns, os.listxattr(path)
        ]  # fmt: skip
    for kind in ("shm", "sem", "msg"):
        table = Path("/proc/sysvipc") / kind
        result["../" * 9 + str(table)[1:]] = [len(table.read_text().splitlines()) if table.exists() else 0]
    return result


# one interpreter that forks: it reads sources and folders, a line each, and writes what every program printed
_BARE = """
import ctypes, json, os, signal, sys
for line in sys.stdin:
    source, folder = json.loads(line)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(20)
            os.chdir(folder)
            os.dup2(writing, 1)
            os.dup2(writing, 2)
            exec(compile(source, "program", "exec"), {"__name__": "__main__"})
        except BaseException as error:
            print(repr(error))
        finally:
            sys.stdout.flush()
            os._exit(0)
    os.close(writing)
    with open(reading, errors="replace") as file:
        shown = file.read()
    os.waitpid(pid, 0)
    print(json.dumps(shown), flush=True)
"""


@contextlib.contextmanager
def bare() -> Iterator[Callable[[str, str], str]]:
    """A function that runs a program in a folder, in a process that nothing confines, and gives what it printed."""
    words = [sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", _BARE]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None and server.stdout is not None

        def run(source: str, folder: str) -> str:
            server.stdin.write(json.dumps([source, folder]) + "\n")
            server.stdin.flush()
            return json.loads(server.stdout.readline())

        yield run
