"""Verify free-form answers by equal text or equal number."""

from __future__ import annotations

from mmrl.rewards.answers.numbers import parse_number, unify_dashes, unify_width
from tasks.checks import final_line


def verify(text: str, answer: str) -> dict[str, float]:
    """exact: 1 if the whole reply or its final line equals the answer as normalised text or as a number."""
    replies = {normalise(text), normalise(final_line(text))}
    target = normalise(answer)
    right = target in replies
    if not right and (value := parse_number(target)) is not None:
        right = value in {parse_number(reply) for reply in replies}
    return {"exact": float(right)}


def normalise(text: str) -> str:
    """Remove differences of case, width, minus signs and spacing, and one full stop at the end.

    Superscripts are powers.
    """
    flat = " ".join(unify_dashes(unify_width(unify_dashes(text))).casefold().split())
    return flat.removesuffix(".").rstrip()
