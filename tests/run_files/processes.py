"""Processes of tests that end badly: forked from one that has imported everything and computed nothing."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from mmrl.__main__ import main

_CONTEXT = multiprocessing.get_context("forkserver")  # a process with threads, such as torch's, cannot be forked
_CONTEXT.set_forkserver_preload(["tests.run_files.imported"])


def start(target: Callable[..., Any], *args: Any) -> BaseProcess:
    """Call a function in a new process."""
    process = _CONTEXT.Process(target=target, args=args)
    process.start()
    return process


def run(target: Callable[..., Any], *args: Any, seconds: float = 120) -> int:
    """Call a function in a new process and wait for its end; its exit code, negative for a signal."""
    process = start(target, *args)
    process.join(seconds)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise TimeoutError(f"{target.__name__} took more than {seconds} seconds")
    return process.exitcode


def command(words: list[str], log: Path) -> None:
    """Run an mmrl command; what it says goes into the file, and its status is the process's."""
    import os

    output = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    raise SystemExit(main(words))
