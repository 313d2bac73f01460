"""Value and numbers of an arithmetic expression, computed exactly."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from tasks.checks import final_line

LONGEST = 200  # characters of an expression
_TOKENS = re.compile(r"(?:0|[1-9][0-9]{0,5})|[-+*/()]")


class ExpressionError(ValueError):
    """The text is no expression, or it divides by zero."""


def evaluate(text: str) -> tuple[Fraction, list[int]]:
    """Return the value of an expression of integers, + - * / and brackets, and its numbers in order.

    The usual precedence holds; there are no signs. Single spaces may stand around operators.
    Raises: ExpressionError.
    """
    tokens = split_tokens(text)
    numbers = [int(token) for token in tokens if token.isdigit()]
    value, place = _read_sum(tokens, 0)
    if place != len(tokens):
        raise ExpressionError(f"unexpected {tokens[place]!r}")
    return value, numbers


def split_tokens(text: str) -> list[str]:
    """Split an expression into numbers, operators and brackets."""
    if len(text) > LONGEST or not text.isascii():
        raise ExpressionError("no expression")
    tokens = []
    for part in text.split(" "):
        matches = _TOKENS.findall(part)
        if not part or "".join(matches) != part:
            raise ExpressionError(f"no expression: {part!r}")
        tokens += matches
    return tokens


def verify(text: str, numbers: Sequence[int], target: int) -> dict[str, float]:
    """exact: 1 if the final line is an expression of all the numbers, each once, with the target as its value; numbers:
    1 if it has all the numbers, each once; format: 1 if it is an expression.
    """
    try:
        value, operands = evaluate(final_line(text))
    except ExpressionError:
        return {"exact": 0.0, "numbers": 0.0, "format": 0.0}
    complete = sorted(operands) == sorted(numbers)
    return {"exact": float(complete and value == target), "numbers": float(complete), "format": 1.0}


def _read_sum(tokens: Sequence[str], place: int) -> tuple[Fraction, int]:
    value, place = _read_product(tokens, place)
    while place < len(tokens) and tokens[place] in "+-":
        sign = tokens[place]
        other, place = _read_product(tokens, place + 1)
        value = value + other if sign == "+" else value - other
    return value, place


def _read_product(tokens: Sequence[str], place: int) -> tuple[Fraction, int]:
    value, place = _read_operand(tokens, place)
    while place < len(tokens) and tokens[place] in "*/":
        sign = tokens[place]
        other, place = _read_operand(tokens, place + 1)
        if sign == "/" and other == 0:
            raise ExpressionError("division by zero")
        value = value * other if sign == "*" else value / other
    return value, place


def _read_operand(tokens: Sequence[str], place: int) -> tuple[Fraction, int]:
    if place < len(tokens) and tokens[place].isdigit():
        return Fraction(int(tokens[place])), place + 1
    if place >= len(tokens) or tokens[place] != "(":
        raise ExpressionError("a number is missing")
    value, place = _read_sum(tokens, place + 1)
    if place >= len(tokens) or tokens[place] != ")":
        raise ExpressionError("a bracket is not closed")
    return value, place + 1
