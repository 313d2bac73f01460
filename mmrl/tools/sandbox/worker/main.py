"""Worker process that waits for programs and forks a supervisor for each, without reading them."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import sys
from typing import Any

from mmrl.tools.sandbox.worker.confinement import end_with_parent
from mmrl.tools.sandbox.worker.landlock import create_ruleset, library_paths
from mmrl.tools.sandbox.worker.messages import write_message
from mmrl.tools.sandbox.worker.mounts import enter_private_root
from mmrl.tools.sandbox.worker.place import Place
from mmrl.tools.sandbox.worker.scratch import FolderScratch, MountedScratch
from mmrl.tools.sandbox.worker.seccomp import build_filter
from mmrl.tools.sandbox.worker.supervisor import raise_open_files, run, supervise

# Modules that programs use, loaded once for all of them; some need shared libraries that a program cannot read.
MODULES = (
    *("re", "random", "math", "collections", "itertools", "functools", "string", "heapq", "bisect", "datetime"),
    *("decimal", "fractions", "typing", "copy", "unicodedata", "hashlib", "statistics", "dataclasses", "time"),
    *("zlib", "_bz2", "_lzma", "pyexpat", "_uuid", "_queue", "_strptime", "encodings.idna"),
)


def main(unsafe: bool) -> None:
    """Report which confinement this machine supports, then serve requests until the other side has gone."""
    request, reply = _move_pipes()
    for name in MODULES:
        with contextlib.suppress(ImportError):  # an interpreter may have been built without it
            importlib.import_module(name)
    gc.freeze()  # modules loaded so far are never collected, so their memory stays shared between processes
    processes = os.open("/proc", os.O_PATH | os.O_DIRECTORY) if sys.platform == "linux" else None
    scratch = _make_scratch()
    try:
        os.environ.clear()
        os.environ.update(HOME=scratch.folder, TMPDIR=scratch.folder, PATH="/nowhere")
        place = Place(scratch, unsafe, processes)
        hello = _begin(place)
        write_message(reply, json.dumps(hello).encode())
        if "down" not in hello:
            _serve(request, reply, place)
    finally:
        if isinstance(scratch, FolderScratch):
            scratch.end()
            os.rmdir(scratch.folder)
        os._exit(0)


def _move_pipes() -> tuple[int, int]:
    """Move the request and reply pipes to new descriptors; the standard streams become /dev/null."""
    request, reply, nothing = os.dup(0), os.dup(1), os.open(os.devnull, os.O_RDWR)
    for end in (0, 1, 2):
        os.dup2(nothing, end)
    os.close(nothing)
    raise_open_files()
    return request, reply


def _make_scratch() -> MountedScratch | FolderScratch:
    """Choose mounted scratch if this user may mount; a fork tries it, since a partial mount cannot be undone."""
    if sys.platform != "linux":
        return FolderScratch()
    trial = os.fork()
    if trial == 0:
        status = 1
        try:
            enter_private_root(library_paths())
            MountedScratch().begin(1, 1)
            status = 0
        finally:
            os._exit(status)
    if os.waitpid(trial, 0)[1] != 0:
        return FolderScratch()
    enter_private_root(library_paths())
    return MountedScratch()


def _begin(place: Place) -> dict[str, Any]:
    """Build the rules for files and system calls, and test them with an empty program.

    Returns the reason why programs cannot be confined, or the missing parts of an unsafe sandbox and the folder to
    remove if this process is killed.
    """
    missing = []
    try:
        place.rules = create_ruleset(place.scratch.ruled)
    except Exception as error:
        missing.append(str(error))
    try:
        place.calls = build_filter()
    except Exception as error:
        missing.append(str(error))
    if missing and not place.unsafe:
        return {"down": "; ".join(missing)}
    limits = {"seconds": 10, "cpu_seconds": 10, "memory_mb": 1024, "files_mb": 1, "files": 1, "output": 1}
    ran = run({"source": "", "limits": limits}, place, 0)
    place.scratch.end()
    if "down" in ran or ran["outcome"] != "ok":
        return {"down": ran.get("down") or f"an empty program ended with {ran['outcome']} {ran['reason']}"}
    watched = place.scratch.folder if place.scratch.watched else None
    return {"missing": missing + ran["missing"], "folder": watched}


def _serve(request: int, reply: int, place: Place) -> None:
    while True:
        select.select([request], [], [])
        if _at_end(request):
            return
        parent = os.getpid()
        supervisor = os.fork()
        if supervisor == 0:
            status = 1
            try:
                end_with_parent(parent)
                supervise(request, reply, place)
                status = 0
            finally:
                os._exit(status)
        if os.waitpid(supervisor, 0)[1] != 0:
            return  # the rest of its request may still be in the pipe


def _at_end(end: int) -> bool:
    """Whether a pipe is empty and has no writer."""
    events = select.poll()
    events.register(end, select.POLLIN)
    return not dict(events.poll(0)).get(end, 0) & select.POLLIN
