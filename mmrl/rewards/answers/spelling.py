"""Write an answer with the separators and capitals of a task's own answers: [1, 4, 2] as 1 4 2, Blue as blue."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mmrl.rewards.answers.numbers import parse_number

_INTEGERS = re.compile(r"-?[0-9]+(?:(?P<gap>[ ,;-]|, |; )-?[0-9]+(?:(?P=gap)-?[0-9]+)*)?")
_WORDS = re.compile(r"[a-z]+(?: [a-z]+)*")
_LETTERS = re.compile(r"[A-Z]+")
_PRICE = re.compile(r"[0-9]+\.[0-9]{2}")
_BRACKETS = {"[": "]", "(": ")", "{": "}"}
_LONGEST = 1_000  # characters of a line that is rewritten


def write_like(answer: str, examples: Sequence[str]) -> str:
    """Return an answer whose last line has the separators and capitals of the last line of an example.

    Integers may stand in brackets, with commas or blanks between them; one number may have any form of
    `mmrl.rewards.answers.numbers`; words may have capitals and commas. Values, words and their order stay as they are,
    and so does an answer of another kind than the examples.

    Args:
        answer: of a policy.
        examples: right answers to other problems of the task; the first of the answer's kind counts.
    """
    before, newline, line = answer.rpartition("\n")
    if len(line) > _LONGEST:
        return answer
    bare = _remove_brackets(line.strip())
    spellings = (_write_line(bare, example.rpartition("\n")[2]) for example in examples)
    return f"{before}{newline}{next((each for each in spellings if each is not None), line)}"


def _write_line(line: str, form: str) -> str | None:
    """Write a line in a form; None if it is of another kind."""
    if _PRICE.fullmatch(form):
        value = parse_number(line.removesuffix("dollars").strip(" $€£"))
        return None if value is None or (100 * value).denominator != 1 or value < 0 else f"{float(value):.2f}"
    if (integers := _INTEGERS.fullmatch(form)) is not None:
        gap = integers["gap"]
        return _write_integer(line) if gap is None else _write_integers(line, gap)
    parts = re.split(r"[,;]?[ \t]+|[,;]", line)
    if not all(part.isascii() and part.isalpha() for part in parts):
        return None
    if _WORDS.fullmatch(form):
        return " ".join(parts).lower()
    one_each = len(parts) > 1 and all(len(part) == 1 for part in parts)
    return "".join(parts).upper() if _LETTERS.fullmatch(form) and (one_each or len(parts) == 1) else None


def _write_integer(line: str) -> str | None:
    value = parse_number(line)
    return str(value.numerator) if value is not None and value.denominator == 1 else None


def _write_integers(line: str, gap: str) -> str | None:
    between = r"\s*(?:-|\u2013|to)\s*" if gap == "-" else r"\s*[,;]\s*|\s+"
    parts = re.split(between, line)
    signs = {sign.strip() for sign in re.findall(between, line)}  # "1 2; 3 4" is two groups
    if len(signs) != 1 or not all(re.fullmatch(r"-?[0-9]{1,9}", part) for part in parts):
        return None
    return gap.join(parts)


def _remove_brackets(line: str) -> str:
    closing = _BRACKETS.get(line[:1])
    return line[1:-1].strip() if closing is not None and line.endswith(closing) and len(line) > 2 else line
