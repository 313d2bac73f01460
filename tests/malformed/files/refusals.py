"""What a refusal must be: exit code 1 or 2, at most 12 lines, the place, the value and what to do, within a time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from mmrl.__main__ import main
from mmrl.core.errors import is_user_error
from tests.malformed.files.case import Case

LINES, WIDTH, SECONDS = 12, 160, 20
REMEDY = re.compile(
    r"\b(add|choose|convert|copy|correct|delete|fill in|give|leave|lower|make|measure|mend|must be|name|needs|"
    r"paths start|raise|rename|replace|save|set|shorten|take|write|computes it|have to be)\b",
    re.IGNORECASE,
)


def check_message(text: str, case: Case, status: int = 1) -> None:
    assert status in (1, 2), f"exit code {status}"
    assert "Traceback" not in text
    length = sum(1 + len(line) // WIDTH for line in text.splitlines())
    assert 0 < length <= LINES, f"{length} lines: {text[:3000]}"
    assert re.search(case.place, text), f"does not name {case.place}: {text}"
    assert re.search(case.expected, text, re.DOTALL), f"does not say {case.expected}: {text}"
    assert REMEDY.search(text), f"does not say what to do: {text}"
    assert all(character.isprintable() or character == "\n" for character in text), "control characters"


def refused(read: Callable[[], object], case: Case) -> None:
    """What a reader says; it must have been raised by a `raise` of ours, which a command shows as one line."""
    started = time.monotonic()
    with pytest.raises(Exception) as caught:
        read()
    assert time.monotonic() - started < SECONDS
    assert is_user_error(caught.value), repr(caught.value)[:2000]
    check_message(" ".join(str(caught.value).split()), case)


def commanded(words: Sequence[object], case: Case, capsys: Any) -> None:
    """The same through the command line."""
    capsys.readouterr()
    started = time.monotonic()
    status = main([str(word) for word in words])
    assert time.monotonic() - started < SECONDS
    check_message(capsys.readouterr().err, case, status)
