"""How worksheets, answers, marks, levels and critiques are written, and what is right about them.

A line is four characters: the two digits of a sum, its result modulo 10 or less, and a sign. The worksheet 34_.75_.
asks for two results; its answer is 347.752., and 347.75_. leaves the second one open. Marks and flaws stand as signs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

OPEN = "_"
"""The result of a line that has none."""
PLAIN, FLAW = ".", "x"
"""Signs of a line about which nothing is said, and of one in which a critique names a flaw."""
RIGHT, WRONG, ABSENT = "y", "n", "m"
"""Signs of a line that is marked: right, wrong, without a result."""
ASPECTS = ("accuracy", "completeness", "readability")
"""What is rated, each from 0 to 2."""
KINDS = "wm"
"""Kinds of flaws: a wrong result, a missing one."""
KIND_OF_MARK = {RIGHT: "", WRONG: "w", ABSENT: "m"}


def solve(sums: Sequence[str], modulus: int = 10) -> str:
    """Right results of sums of two digits: 34, 75 are solved by 72 modulo 10."""
    return "".join(str((int(one) + int(two)) % modulus) for one, two in sums)


def write_lines(sums: Sequence[str], results: Sequence[str], signs: Sequence[str] | None = None) -> str:
    """Write sums, results and signs: 347.752. ; without signs they are plain."""
    rows = zip(sums, results, signs or PLAIN * len(sums), strict=True)
    return "".join(pair + result + sign for pair, result, sign in rows)


def read_lines(text: str, sums: Sequence[str], signs: str) -> tuple[str, str] | None:
    """Read results and signs of all lines; None for a text that has other lines.

    Args:
        text: as 347.752.
        sums: of the worksheet.
        signs: characters of which a sign is one.
    """
    form = "".join(f"{pair}([0-9{OPEN}])([{re.escape(signs)}])" for pair in sums)
    match = re.fullmatch(form, text)
    return None if match is None else ("".join(match.groups()[::2]), "".join(match.groups()[1::2]))


def read_answer(text: str, sums: Sequence[str]) -> str | None:
    """Read the results of an answer, of which some may be open."""
    lines = read_lines(text, sums, PLAIN)
    return lines[0] if lines else None


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


def read_feedback(text: str, sums: Sequence[str]) -> tuple[str, str, str] | None:
    """Read the results, the marks and the levels of 347y752n>122; None where it cannot be read."""
    reason, sign, levels = text.partition(">")
    lines = read_lines(reason, sums, RIGHT + WRONG + ABSENT)
    return (*lines, levels) if lines and sign and re.fullmatch(f"[012]{{{len(ASPECTS)}}}", levels) else None


def name_flaws(right: str, results: str, named: str = KINDS) -> list[str | None]:
    """What each line should be by the critique that names these kinds of flaws; None for a line without one."""
    kinds = [KIND_OF_MARK[each] for each in mark(right, results)]
    return [one if kind and kind in named else None for one, kind in zip(right, kinds)]


def write_critique(sums: Sequence[str], results: str, remarks: Sequence[str | None]) -> str:
    """Write a critique of an answer: a line with a flaw has what it should be, another one the answer's result."""
    return write_lines(sums, apply_remarks(results, remarks), [FLAW if each else PLAIN for each in remarks])


def read_remarks(critique: str, sums: Sequence[str]) -> list[str | None] | None:
    """Read what each line should be by a critique, None without a flaw; None for all where it cannot be read."""
    lines = read_lines(critique, sums, PLAIN + FLAW)
    return None if lines is None else [result if sign == FLAW else None for result, sign in zip(*lines)]


def write_remarks(sums: Sequence[str], remarks: Sequence[str | None]) -> str:
    """Write the flaws of a critique alone, as a reviser reads them: 34..752x."""
    return write_lines(sums, [each or PLAIN for each in remarks], [FLAW if each else PLAIN for each in remarks])


def apply_remarks(results: str, remarks: Sequence[str | None]) -> str:
    """Results after every suggestion of a critique has been followed."""
    return "".join(remark or result for result, remark in zip(results, remarks, strict=True))
