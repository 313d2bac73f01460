"""Process that runs one program; its supervisor trusts only its exit status."""

from __future__ import annotations

import json
import os
import sys
import threading
from types import ModuleType
from typing import Any

from mmrl.tools.sandbox.worker.confinement import confine, end_with_parent
from mmrl.tools.sandbox.worker.place import Place

REASON = 2000  # maximum bytes of a program's own report about its end


def run_program(job: dict[str, Any], place: Place, pipes: dict[str, int], parent: int) -> None:
    """Confine this process, say so on the pipe "setup" and close it, run the program, and end with status 0 (it ran to
    its end or exited with 0) or 1. Never returns.
    """
    status = 1
    try:
        try:
            _prepare(place, pipes, parent)
            missing = confine(job["limits"], place)
            # the program cannot use this pipe, which is closed before the first line is compiled
            os.write(pipes["setup"], b"1" + json.dumps(missing).encode())
            if place.rules is not None:
                os.close(place.rules)
            os.close(pipes["setup"])
        except BaseException as error:
            os.write(pipes["setup"], b"0" + str(error).encode(errors="replace")[:REASON])
            os._exit(1)
        status = _execute(job.pop("source"), pipes["reason"])
    finally:
        os._exit(status)


def _prepare(place: Place, pipes: dict[str, int], parent: int) -> None:
    end_with_parent(parent)
    if place.processes is not None:
        score = os.open("self/oom_score_adj", os.O_WRONLY, dir_fd=place.processes)
        os.write(score, b"1000")  # if the machine runs out of memory, the program is killed before the trainer
    os.dup2(pipes["out"], 1)
    os.dup2(pipes["out"], 2)
    fds = sorted({0, 1, 2, pipes["setup"], pipes["reason"]} | ({place.rules} if place.rules is not None else set()))
    for low, high in zip(fds, [*fds[1:], os.sysconf("SC_OPEN_MAX")]):
        os.closerange(low + 1, high)
    os.umask(0o077)
    os.chdir(place.scratch.folder)


def _execute(source: str, reason: int) -> int:
    """Run a program as the main module, wait for its threads, and return the exit status."""
    main = ModuleType("__main__")
    sys.modules["__main__"] = main
    sys.argv = ["program"]
    try:
        try:
            exec(compile(source, "program", "exec"), main.__dict__)
        except SystemExit as error:
            if error.code:
                raise
        threading._shutdown()  # type: ignore[attr-defined]  # what an interpreter does at its end: it waits for threads
        sys.stdout.flush()
        return 0
    except MemoryError:
        os.write(reason, b"MemoryError")
    except BaseException as error:
        os.write(reason, f"{type(error).__name__}: {error}".encode(errors="replace")[:REASON])
    sys.stdout.flush()
    return 1
