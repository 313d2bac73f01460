"""How worksheets, answers, marks, levels and critiques are written, and what is right about them.

A line is three characters. The worksheet 34_75_ asks for two sums modulo 10, or less; its answer is 347752, and 34775_
leaves the second one open. Marks and remarks repeat the sums: 34y75m, 34.752.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

OPEN = "_"
"""The result of a line that has none."""
RIGHT, WRONG, ABSENT = "y", "n", "m"
"""Marks of a line: right, wrong, without a result."""
ASPECTS = ("accuracy", "completeness", "readability")
"""What is rated, each from 0 to 2."""
FINE = "."
"""What a critique says about a line without a flaw."""
KINDS = "wm"
"""Kinds of flaws: a wrong result, a missing one."""
KIND_OF_MARK = {RIGHT: "", WRONG: "w", ABSENT: "m"}


def solve(sums: Sequence[str], modulus: int = 10) -> str:
    """Right results of sums of two digits: 34, 75 are solved by 72 modulo 10."""
    return "".join(str((int(one) + int(two)) % modulus) for one, two in sums)


def write_lines(sums: Sequence[str], parts: Sequence[str]) -> str:
    """Write a part, such as a result, a mark or a remark, after each sum: 347752."""
    return "".join(pair + part for pair, part in zip(sums, parts, strict=True))


def read_lines(text: str, sums: Sequence[str], part: str) -> str | None:
    """Read the part of every line; None for a text that has other lines.

    Args:
        text: as 347752.
        sums: of the worksheet.
        part: characters of which a part is one.
    """
    match = re.fullmatch("".join(f"{pair}([{re.escape(part)}])" for pair in sums), text)
    return None if match is None else "".join(match.groups())


def read_answer(text: str, sums: Sequence[str]) -> str | None:
    """Read the results of an answer, of which some may be left open."""
    return read_lines(text, sums, f"0123456789{OPEN}")


def mark(right: Sequence[str], results: Sequence[str]) -> str:
    """Mark every line of an answer, given the right results."""
    return "".join(
        ABSENT if result == OPEN else RIGHT if result == one else WRONG
        for one, result in zip(right, results, strict=True)
    )


def rate(marks: str) -> tuple[int, int, int]:
    """Levels of accuracy, completeness and readability: 2 without a flaw, 1 with one flaw, 0 with more.

    Accuracy counts wrong lines, completeness open ones. An answer that has the lines of its worksheet is readable, 2.
    """
    return max(2 - marks.count(WRONG), 0), max(2 - marks.count(ABSENT), 0), 2


def read_feedback(text: str, sums: Sequence[str]) -> tuple[str, str] | None:
    """Read the marks, which are the reason, and the levels of 34y75n>122; None where it cannot be read."""
    reason, sign, levels = text.partition(">")
    marks = read_lines(reason, sums, RIGHT + WRONG + ABSENT)
    return (marks, levels) if marks and sign and re.fullmatch(f"[012]{{{len(ASPECTS)}}}", levels) else None


def read_critique(text: str, sums: Sequence[str]) -> str | None:
    """Read the remarks of a critique: . about a line without a flaw, else what its result should be."""
    return read_lines(text, sums, f"0123456789{FINE}")


def write_remarks(right: str, results: str, named: str = KINDS) -> str:
    """Remarks of the right critique that names these kinds of flaws, given the right results."""
    kinds = [KIND_OF_MARK[each] for each in mark(right, results)]
    return "".join(one if kind and kind in named else FINE for one, kind in zip(right, kinds))


def apply_remarks(results: str, remarks: str) -> str:
    """Results after every suggestion of a critique has been followed."""
    return "".join(result if remark == FINE else remark for result, remark in zip(results, remarks, strict=True))
