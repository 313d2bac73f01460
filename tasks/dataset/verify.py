"""Verify free-form answers by equal text or equal number."""

from __future__ import annotations

import re
from fractions import Fraction

from mmrl.rewards.extract import unify_width
from tasks.checks import final_line

# 12, -0.5, .5, 1,250.75, 3e-7, 1/2; bounded, so that a rambling policy cannot make the arithmetic slow
_DECIMAL = r"[+-]?(?:[0-9]{1,3}(?:,[0-9]{3}){1,10}|[0-9]{1,40})?(?:\.[0-9]{1,40})?(?:e[+-]?[0-9]{1,2})?"
NUMBER = re.compile(rf"(?=[+-]?\.?[0-9]){_DECIMAL}|[+-]?[0-9]{{1,40}}/[0-9]{{1,40}}")

_MINUS = str.maketrans("−–", "--")


def verify(text: str, answer: str) -> dict[str, float]:
    """exact: 1 if the whole reply or its final line equals the answer as normalised text or as a number."""
    replies = {normalise(text), normalise(final_line(text))}
    wanted = normalise(answer)
    right = wanted in replies
    if not right and (value := number(wanted)) is not None:
        right = value in {number(reply) for reply in replies}
    return {"exact": float(right)}


def normalise(text: str) -> str:
    """Remove differences of case, width, minus signs and spacing, and one full stop at the end.

    Superscripts are powers.
    """
    flat = " ".join(unify_width(text).translate(_MINUS).casefold().split())
    return flat.removesuffix(".").rstrip()


def number(text: str) -> Fraction | None:
    """Exact value of a decimal number or a fraction; None for other text."""
    if not NUMBER.fullmatch(text) or re.search(r"/0+$", text):
        return None
    return Fraction(text.replace(",", ""))
