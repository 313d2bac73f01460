"""Principles of judgements, the grades that they give to sentences, and how question and reply are written."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from tasks.grammar.language import LETTERS, is_sentence

LONGEST = 8
"""Letters of the longest sentence."""
LOW, HIGH = 1, 5
"""The worst and the best grade."""
KINDS = LETTERS + "n"
"""What a part of a principle counts: a letter, or n for all letters."""
WORDS = {f"+{letter}": f"many {letter}" for letter in LETTERS} | {"-n": "short"}
"""Principles with one part in words, as annotators write them."""
SATISFIED = 3
"""The least grade of an answer that satisfies a principle."""
BROKEN = "x"
"""What stands for an answer that a judge cannot read, and for the counts of what is no sentence."""
PRINCIPLE = re.compile(rf"(?:[+-][{KINDS}])+")


def grade(principle: str, text: str) -> int:
    """Grade a text from 1 to 5: more of what each part of the principle names with +, less with -.

    A part gives the count of its letter in units of half of the longest sentence, which no letter exceeds, or the
    length in units of the longest sentence; with - one minus that. The grade is 1 + 4 * the mean of the parts, rounded
    half up. What is no sentence has the grade 1.
    """
    if not is_sentence(text, LONGEST):
        return LOW
    parts = split_parts(principle)
    quarters = 0  # of all parts, each from 0 to 4
    for sign, kind in parts:
        count = len(text) // 2 if kind == "n" else text.count(kind)
        quarters += count if sign == "+" else HIGH - LOW - count
    return LOW + (2 * quarters + len(parts)) // (2 * len(parts))


def split_parts(principle: str) -> list[tuple[str, str]]:
    """Return sign and kind of each part of a principle."""
    return [(principle[i], principle[i + 1]) for i in range(0, len(principle), 2)]


def write_question(principle: str, answers: Sequence[str]) -> str:
    """Write a question: +b badi kabe?"""
    return f"{' '.join([principle, *map(show_answer, answers)])}?"


def show_answer(answer: str) -> str:
    """Return an answer as the judge reads it: what has other characters than letters, or is too long, is shown as x."""
    return answer if re.fullmatch(rf"[a-z]{{1,{LONGEST}}}", answer) else BROKEN


def write_reasons(principle: str, answers: Sequence[str]) -> str:
    """Write why answers have their grades: the count of each part of the principle in each answer, as 24,02.

    +b-n baba diki: two b and four letters, no b and four letters: 24,04. What is no sentence has the reason x.
    """
    kinds = [kind for _, kind in split_parts(principle)]
    counts = [
        "".join(str(len(text) if kind == "n" else text.count(kind)) for kind in kinds)
        if is_sentence(text, LONGEST)
        else BROKEN
        for text in answers
    ]
    return ",".join(counts)


def split_reasons(text: str, count: int, parts: int) -> tuple[str, str] | None:
    """Split a reply with reasons, 24,04=34, into the reasons and the rest; None where a reason is absent or unreadable.

    Args:
        text: of the reply.
        count: number of answers.
        parts: of the principle.
    """
    reasons, equals, rest = text.partition("=")
    each = reasons.split(",")
    readable = len(each) == count and all(re.fullmatch(rf"[0-{LONGEST}]{{{parts}}}|{BROKEN}", one) for one in each)
    return (reasons, rest) if equals and readable else None


def write_reply(grades: Sequence[int], ranked: bool) -> str:
    """Write a reply: a digit for each answer, and the places from the best to the worst where asked for: 531:123."""
    digits = "".join(map(str, grades))
    if not ranked:
        return digits
    order = sorted(range(len(grades)), key=lambda i: -grades[i])
    return f"{digits}:{''.join(str(i + 1) for i in order)}"


def read_reply(text: str, count: int, ranked: bool) -> list[int] | None:
    """Read the grades of a reply; None where it is unreadable, or its ranking contradicts its grades."""
    grades, colon, places = text.partition(":")
    if not re.fullmatch(rf"[{LOW}-{HIGH}]{{{count}}}", grades, re.ASCII) or bool(colon) != ranked:
        return None
    numbers = [int(digit) for digit in grades]
    if ranked:
        if sorted(places) != [str(i + 1) for i in range(count)]:
            return None
        ordered = [numbers[int(place) - 1] for place in places]
        if any(better < worse for better, worse in itertools.pairwise(ordered)):
            return None
    return numbers


def write_verdicts(grades: Sequence[int]) -> str:
    """Write for each answer whether it satisfies the principle: yn."""
    return "".join("y" if each >= SATISFIED else "n" for each in grades)


def read_verdicts(text: str, count: int) -> list[int] | None:
    """Read verdicts as the highest and the lowest grade; None where the reply is unreadable."""
    return [HIGH if letter == "y" else LOW for letter in text] if re.fullmatch(rf"[yn]{{{count}}}", text) else None
