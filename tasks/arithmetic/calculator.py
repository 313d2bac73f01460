"""A calculator as a tool: rollout.functions=[tasks.arithmetic.calculator.calculate]."""

from __future__ import annotations

import re

from tasks.arithmetic.task import SYMBOLS, result

EXPRESSION = re.compile(r"\s*(-?\d{1,12})\s*([*+-])\s*(-?\d{1,12})\s*", re.ASCII)


def calculate(expression: str) -> int:
    """Compute a sum, a difference or a product of two whole numbers.

    Args:
        expression: such as 27 * 48.
    """
    match = EXPRESSION.fullmatch(expression)
    if match is None:
        raise ValueError(f"write two whole numbers with one of {' '.join(SYMBOLS)} between them, such as 27 * 48")
    first, symbol, second = match.groups()
    return result(symbol, (int(first), int(second)))
