"""Log-probs of the same text under two tokenizers: spans between the boundaries that both have.

With student tokens s_1 ... s_m and teacher tokens t_1 ... t_n that spell the same text, a span is the text between two
neighbouring character offsets at which a token ends in both. log p(span) is the sum of the log-probs of its tokens, by
the chain rule the log-probability that a model writes these tokens after what stands before. With equal tokenizers
every token is a span.
"""

from __future__ import annotations

import itertools
import math
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


def span_ratios(
    tokens: Sequence[str],
    logprobs: Sequence[float],
    teacher_tokens: Sequence[str],
    teacher_logprobs: Sequence[float | None],
    prompt: str,
) -> list[tuple[tuple[int, int], float]]:
    """Return the student's tokens [low, high) of each span, and log p_teacher(span) - log p_student(span) in nats.

    A beginning of the teacher's tokens that is not of the text, such as its own first token, is left out. A row whose
    tokens do not spell the text, since the server writes parts of a character in another way, has no spans.

    Args:
        tokens, logprobs: of the student's completion.
        teacher_tokens, teacher_logprobs: of prompt and completion.
        prompt: text before the completion.
    """
    whole = prompt + "".join(tokens)
    extra = "".join(teacher_tokens).removesuffix(whole)
    skip = next((i for i in range(len(teacher_tokens)) if "".join(teacher_tokens[:i]) == extra), 0)
    try:
        spans = align_spans(tokens, teacher_tokens[skip:], len(prompt))
    except ValueError:
        return []
    ratios = []
    for span in spans:
        theirs = teacher_logprobs[skip + span.teacher[0] : skip + span.teacher[1]]
        if all(value is not None for value in theirs):
            ratios.append((span.student, math.fsum(theirs) - math.fsum(logprobs[slice(*span.student)])))  # type: ignore[arg-type]
    return ratios
