"""The language of the programs: letters that transform a list of digits, one after the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from mmrl.tools.sandbox import Sandbox

LETTERS = {
    "r": "turn round",
    "s": "sort",
    "i": "add one to each, 9 becomes 0",
    "d": "double each, last digit",
    "h": "the first goes to the end",
    "c": "nine minus each",
}

LANGUAGE = """
import json
STEPS = {
    "r": lambda x: x[::-1], "s": sorted, "i": lambda x: [(v + 1) % 10 for v in x],
    "d": lambda x: [2 * v % 10 for v in x], "h": lambda x: x[1:] + x[:1], "c": lambda x: [9 - v for v in x],
}
def run(program, given):
    try:
        x = [int(digit) for digit in given]
        for letter in program:
            x = STEPS[letter](x)
        return "".join(map(str, x))
    except Exception:
        return None
"""
"""The interpreter, as the source that is run in the sandbox."""


def execute(jobs: Sequence[tuple[str, str]], sandbox: Sandbox) -> list[str | None] | str:
    """Run each program on its list; None where it cannot be run, or the outcome of a failed run.

    The expected results stay outside of the sandbox: whoever calls compares what comes back.
    """
    if not jobs:
        return []
    text = json.dumps(json.dumps(list(jobs)))
    done = sandbox.run(f"{LANGUAGE}\nprint(json.dumps([run(*job) for job in json.loads({text})]))")
    return parse_results(done.output, len(jobs)) if done.outcome == "ok" else done.outcome


def parse_results(output: str, count: int) -> list[str | None] | str:
    """The results that a run printed, or "unreadable" where it did not print one for each of `count` jobs: a process
    can exit with status 0 before it has printed them, or print anything else."""
    try:
        results = json.loads(output)
    except (ValueError, RecursionError):
        return "unreadable"
    complete = isinstance(results, list) and len(results) == count
    return results if complete and all(r is None or isinstance(r, str) for r in results) else "unreadable"


@cache
def trusted_interpreter() -> Callable[[str, str], str | None]:
    """The interpreter without a sandbox, for programs that the task itself generates."""
    names: dict[str, Any] = {}
    exec(LANGUAGE, names)
    return names["run"]
