"""Processes of tests: forked from one that has imported everything and computed nothing."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from mmrl.__main__ import main
from tests.tiny_recipes import free_port

_CONTEXT = multiprocessing.get_context("forkserver")  # a process with threads, such as torch's, cannot be forked
_CONTEXT.set_forkserver_preload(["tests.runs.imported"])


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
    output = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    raise SystemExit(main(words))


def ranked(words: list[str], log: Path, rank: int, ranks: int, port: int) -> None:
    """Run an mmrl command as one of several processes, with the variables that torchrun sets."""
    local = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "GROUP_RANK": 0}
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "tests"}
    os.environ.update({name: str(value) for name, value in (local | where).items()})
    command(words, log)


def run_ranks(words: Sequence[str], folder: Path, ranks: int = 2, seconds: float = 120) -> None:
    """Run an mmrl command in several processes that are started together, as torchrun does, and wait for their end.

    Raises:
        RuntimeError: where one ends with an error or takes too long; with the end of its log in `folder`.
    """
    port = free_port()
    logs = [folder / f"rank{rank}.log" for rank in range(ranks)]
    started = [start(ranked, list(words), log, rank, ranks, port) for rank, log in enumerate(logs)]
    for process in started:
        process.join(seconds)
    for process, log in zip(started, logs):
        if process.exitcode != 0:
            for each in started:
                each.kill()
            raise RuntimeError(f"exit code {process.exitcode}\n{log.read_text()[-10000:]}")
