"""Run the programs of policies in the sandbox and read their results as plain data."""

from __future__ import annotations

import base64
import hashlib
import json
import marshal
import os
import queue
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from mmrl.tools.sandbox import Limits, Ran, Sandbox
from tasks.code import driver, expressions, forms, interpreter, scopes

LIMITS = Limits(seconds=4.0, cpu_seconds=1, output=1 << 18)
BUDGET = 100_000  # operations of a program that is counted, over all its calls
_WORKERS = 8
_CACHED = 1 << 14  # outcomes that are kept
_REPEATABLE = ("ran", "raised", "syntax_error", "no_function")  # words that no load of the machine changes

Call = tuple[list[Any], dict[str, Any]]
"""Encoded arguments by place and by name."""


@dataclass(frozen=True)
class Outcome:
    """What a program did on its calls.

    `word` is "ran" (every call returned), or the name of an error: "syntax_error", "no_function", "raised", "exited",
    "timed_out", "out_of_memory", "out_of_disk", "too_long", "killed", "not_text", or "unreadable" (the program wrote
    into its results). `operations` and `counted` come from an interpreter that the program cannot reach; everything
    else is what the program's own process said.
    """

    word: str
    results: list[list[Any]] = field(default_factory=list)  # by call: ["returned", value, 0] or [error, name, line]
    reason: str = ""  # name of the exception
    line: int = 0  # of the program
    lines: tuple[int, ...] = ()  # that were executed
    operations: int = 0  # 0 for a program that was not counted
    counted: list[list[Any]] = field(default_factory=list)  # by call: ["returned", value], as interpreted
    uncounted: str = ""  # the form that is not counted


def run_candidates(
    programs: Sequence[tuple[str, str, Sequence[Call]]], count: bool, unsafe: bool = False
) -> list[Outcome]:
    """Run programs, each in a process of its own: (program, name of its function, calls).

    A program that has run on the same calls before is not run again, since its outcome would be the same.

    Args:
        programs: what a policy wrote, and the inputs; expected results are no part of it.
        count: count operations, at most `BUDGET`, and note executed lines.
        unsafe: run programs on a machine that cannot confine them.
    """
    jobs = [
        dict(program=program, name=name, calls=list(calls), budget=BUDGET, count=count)
        for program, name, calls in programs
    ]
    keys = [hashlib.sha256(json.dumps(job).encode()).digest() for job in jobs]
    outcomes = {key: _outcomes[key] for key in keys if key in _outcomes}
    new = {key: job for key, job in zip(keys, jobs) if key not in outcomes}
    for (key, job), ran in zip(new.items(), run_driver("run_candidate", list(new.values()), unsafe)):
        outcomes[key] = read_outcome(ran, len(job["calls"]), count)
    if len(_outcomes) > _CACHED:
        _outcomes.clear()
    _outcomes.update({key: outcomes[key] for key in new if outcomes[key].word in _REPEATABLE})
    return [outcomes[key] for key in keys]


def run_driver(function: str, jobs: Sequence[Any], unsafe: bool) -> list[Ran]:
    """Run a function of the driver on each job, several at a time."""
    sources = [f"{_load_driver()}{function}(json.loads({json.dumps(json.dumps(job))}))" for job in jobs]
    free: queue.SimpleQueue[Sandbox] = queue.SimpleQueue()
    for sandbox in _sandboxes(os.getpid(), unsafe)[: max(1, len(sources))]:
        free.put(sandbox)

    def run(source: str) -> Ran:
        sandbox = free.get()
        try:
            return sandbox.run(source)
        finally:
            free.put(sandbox)

    with ThreadPoolExecutor(free.qsize()) as threads:
        return list(threads.map(run, sources))


def read_outcome(ran: Ran, calls: int, count: bool) -> Outcome:
    """Read what the process of a program printed, a line of JSON for the count, the program and each call."""
    lines = ran.output.splitlines()
    counted: dict[str, Any] = {}
    try:
        first = _read_line(lines[0], COUNT_WORDS) if count and lines else ["uncounted", "", 0]
        if first[0] == "counted":
            counted = {"counted": first[1], "operations": first[2]}
        elif first[0] == "uncounted":
            counted = {"uncounted": str(first[1])}
        else:
            return Outcome(first[0], reason=str(first[1]), line=first[2])
        messages = [_read_line(line, PROGRAM_WORDS) for line in (lines[1:] if count else lines)]
    except ValueError:
        # the last line of a process that was ended may be cut off
        word = ran.outcome if ran.outcome not in ("ok", "raised") else "unreadable"
        return Outcome(word, reason=ran.reason, **counted)
    executed: tuple[int, ...] = ()
    if messages and messages[-1][0] == "executed":
        executed = tuple(line for line in messages.pop()[1] if isinstance(line, int))
    if not messages or messages[0][0] != "loaded":
        word, reason, line = messages[0] if messages else (ran.outcome, ran.reason, 0)
        kind = "exited" if word == "ok" else word
        return Outcome(kind, reason=str(reason), line=line, lines=executed, **counted)
    results = messages[1:]
    if len(results) > calls:
        return Outcome("unreadable", **counted)
    word, reason, line = "ran", "", 0
    for result in results:
        if result[0] != "returned":
            word, reason, line = result[0], str(result[1]), result[2]
            break
    if word == "ran" and len(results) < calls:
        word, reason = ("exited" if ran.outcome == "ok" else ran.outcome), ran.reason
    return Outcome(word, results, reason, line, executed, **counted)


COUNT_WORDS = ("counted", "uncounted", "timed_out", "syntax_error")
PROGRAM_WORDS = ("returned", "raised", "exited", "loaded", "syntax_error", "no_function", "executed")
LIST_WORDS = ("counted", "executed")


def _read_line(line: str, words: Sequence[str]) -> list[Any]:
    try:
        message = json.loads(line)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(message, list) or len(message) != 3 or message[0] not in words:
        raise ValueError("no line of the driver")
    if type(message[2]) is not int or (message[0] in LIST_WORDS and not isinstance(message[1], list)):
        raise ValueError("no line of the driver")
    return message


_outcomes: dict[bytes, Outcome] = {}


@cache
def _load_driver() -> str:
    """A program that defines the driver's functions; its code is compiled once, since each run executes it."""
    modules = "".join(map(_load_module, (forms, scopes, expressions, interpreter)))
    return f"import base64, json, marshal, sys, types\n{modules}exec({_load_code(driver)})\n"


def _load_module(module: ModuleType) -> str:
    name = module.__name__
    return f"module = sys.modules[{name!r}] = types.ModuleType({name!r})\nexec({_load_code(module)}, module.__dict__)\n"


def _load_code(module: ModuleType) -> str:
    """An expression that loads the code of a module's file."""
    assert module.__file__ is not None
    code = compile(Path(module.__file__).read_text(), "driver", "exec")
    return f"marshal.loads(base64.b64decode({base64.b64encode(marshal.dumps(code)).decode()!r}))"


@cache
def _sandboxes(process: int, unsafe: bool) -> list[Sandbox]:
    return [Sandbox(LIMITS, unsafe) for _ in range(min(_WORKERS, os.cpu_count() or 1))]
