"""Equality of mathematical answers by math-verify, in processes that are killed at a time limit."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal

from mmrl.core.installation.optional_packages import MissingPackageError, format_missing
from mmrl.rewards.answers.numbers import parse_number, unify_powers
from mmrl.rewards.worker import CallTimedOut, WorkerError, WorkerPool

Outcome = Literal["equal", "different", "timeout", "failed"]
"""timeout: the limit passed and the process was killed. failed: math-verify raised, or its process ended."""
MEMORY_BYTES = 4 * 2**30
"""Address space of a process: a power tower would fill the machine's memory before the limit."""
_MARK = re.compile(r"<\|[^|<>\n]*\|>|</?s>")
"""Special tokens of a chat template, which math-verify reads over."""
_SET = re.compile(r"\\?\{[^{}]*,[^{}]*\}$|\\\{")
_OTHER = re.compile(
    r"[0-9]\s*(?:[:‰'_₀-₉]|\\\\|\{\}\s*[0-9]|\.\.+\s*[0-9]|\.?\\(?:overline|bar|dot)(?![a-z])|\\[lc]?dots\s*[0-9])"
)
"""Ratios, units, bases, ranges and repeating decimals that math-verify reads as the number before them."""
_RELATION = re.compile(r"(?:[<>≤≥≠∈∉∝]|!=|\\(?:[lg]eq?(?:q|slant)?|[lg]t|neq?|not|in|notin|propto)(?![A-Za-z]))")
"""A relation that has no left side, as in \\neq 42, which math-verify reads over."""
_HAS_PERCENT = re.compile(r"%|\bper ?cent\b")
LONGEST = 2_000
"""Characters of an answer that is parsed; longer ones are different."""


def compare_answers(pairs: Sequence[tuple[str, str]], timeout_s: float = 5.0) -> list[Outcome]:
    """Compare pairs (right answer, given answer), each within the time limit; may be called from threads.

    LaTeX and plain expressions are read: fractions, roots, sets, intervals, matrices. Equal texts are equal without a
    process.

    Raises:
        ModuleNotFoundError: math-verify is not installed.
        RuntimeError: it cannot be started.
    """
    undecided = list(dict.fromkeys(pair for pair in pairs if not _decide(pair)))
    results = _start(_pool(timeout_s)).call_all(undecided) if undecided else []
    outcomes: dict[tuple[str, str], Outcome] = {}
    for pair, result in zip(undecided, results):
        if isinstance(result, WorkerError):
            outcomes[pair] = "timeout" if isinstance(result, CallTimedOut) else "failed"
        else:
            outcomes[pair] = "equal" if result else "different"
    return [_decide(pair) or outcomes[pair] for pair in pairs]


def _decide(pair: tuple[str, str]) -> Outcome | None:
    """Outcome of a pair that needs no parser."""
    right, answer = (text.strip() for text in pair)
    if right == answer:
        return "equal"
    if not answer or len(answer) > LONGEST or _MARK.search(answer) or _is_set(right) != _is_set(answer):
        return "different"
    if _RELATION.match(answer.strip("$ ")) and not _RELATION.match(right.strip("$ ")):
        return "different"
    values = parse_number(right), parse_number(answer)
    if None in values:
        other = (_HAS_PERCENT.search(answer) and not _HAS_PERCENT.search(right)) or (
            values[0] and _OTHER.search(answer)
        )
        return "different" if other else None
    return "equal" if values[0] == values[1] else "different"


def _is_set(text: str) -> bool:
    """Whether a text is a list in braces; math-verify reads {1,2} as a pair."""
    return _SET.match(text.strip("$ ").removeprefix("\\left")) is not None


def _start(pool: WorkerPool) -> WorkerPool:
    """Start a process, whose errors are none of an answer."""
    try:
        pool.start()
    except WorkerError as error:
        if "math_verify" in str(error) and "ModuleNotFoundError" in str(error):
            message = format_missing("task.equality=math", "math_verify")
            raise MissingPackageError(message, name="math_verify") from error
        raise RuntimeError(f"task.equality=math cannot start math-verify: {error}; install it again") from error
    return pool


@lru_cache(maxsize=4)
def _pool(timeout_s: float) -> WorkerPool:
    return WorkerPool(load_comparison, processes=max(1, min(8, os.cpu_count() or 1)), timeout_s=timeout_s)


def load_comparison() -> Callable[[str, str], bool]:
    """Load the comparison in a worker process, whose memory is limited."""
    import logging
    import resource

    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns of the disabled alarms in every call
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))

    @lru_cache(maxsize=4096)  # the right answer of a group is parsed once
    def read(text: str) -> list:
        # math-verify's own limits are alarms, which work in a main thread alone; this process is killed instead
        text = unify_powers(text)
        return parse(text if "$" in text or "\\boxed" in text else f"${text}$", parsing_timeout=None)

    def compare(right: str, answer: str) -> bool:
        return bool(verify(read(right), read(answer), timeout_seconds=None))

    return compare
