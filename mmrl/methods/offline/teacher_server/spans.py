"""Log-probs of the same text under two tokenizers: spans between the boundaries that both have.

With student tokens s_1 ... s_m and teacher tokens t_1 ... t_n that spell the same text, a span is the text between two
neighbouring character offsets at which a token ends in both. log p(span) is the sum of the log-probs of its tokens, by
the chain rule the log-probability that a model writes these tokens after what stands before. With equal tokenizers
every token is a span.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """Tokens [student] and [teacher], as half-open intervals of their indices."""

    student: tuple[int, int]
    teacher: tuple[int, int]


def align_spans(student: Sequence[str], teacher: Sequence[str], start: int = 0) -> list[Span]:
    """Align the tokens of a completion with those of prompt and completion together.

    Student tokens before the first common boundary, where a teacher's token begins in the prompt, are in no span. A
    token without text, which begins a character of several tokens, belongs to the token that ends the character.

    Args:
        student: texts of the tokens of the completion.
        teacher: texts of the tokens of prompt and completion.
        start: characters of the prompt.

    Raises:
        ValueError: the texts differ.
    """
    ours, theirs = _ends(student, start), _ends(teacher, 0)
    if "".join(teacher)[start:] != "".join(student):
        raise ValueError(f"the texts differ: {''.join(teacher)[start:]!r} and {''.join(student)!r}")
    common = sorted((ours.keys() & theirs.keys()) | ({start} if start == 0 or start in theirs else set()))
    ours.setdefault(start, 0)
    theirs.setdefault(0, 0)
    return [Span((ours[low], ours[high]), (theirs[low], theirs[high])) for low, high in itertools.pairwise(common)]


def _ends(tokens: Sequence[str], start: int) -> dict[int, int]:
    """Number of tokens before each character offset at which a token with text ends; the smallest where several do."""
    ends: dict[int, int] = {}
    at = start
    for number, text in enumerate(tokens, 1):
        at += len(text)
        if text:
            ends[at] = number
    return ends
