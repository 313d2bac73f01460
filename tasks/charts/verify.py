"""Verify a number or a word that is read from an image."""

from __future__ import annotations

import re

from tasks.checks import final_line


def verify(text: str, answer: str) -> dict[str, float]:
    """Score the final line, which is to be written as the answer is: a word, a whole number, or a price such as 3.20.

    exact: 1 if it is the answer. format: 1 if it is of the answer's kind.
    close: max(0, 1 - |x - a| / max(a, 1)) of a number x for the number a; equal to exact for words.
    """
    final = final_line(text)
    for pattern in (r"[0-9]{1,6}", r"[0-9]{1,6}\.[0-9]{2}"):
        if re.fullmatch(pattern, answer):
            well_formed = re.fullmatch(pattern, final) is not None
            error = abs(float(final) - float(answer)) / max(float(answer), 1.0) if well_formed else 1.0
            exact = well_formed and float(final) == float(answer)
            return {"exact": float(exact), "close": max(0.0, 1 - error), "format": float(well_formed)}
    exact = final == answer
    return {"exact": float(exact), "close": float(exact), "format": float(re.fullmatch("[A-Za-z]+", final) is not None)}
