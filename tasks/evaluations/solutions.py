"""Solutions of sums step by step, errors that are injected into them, and what an evaluator should say about them."""

from __future__ import annotations

import re
from itertools import accumulate

import numpy as np

ERRORS = ("digit", "type", "missing")
WRONG_TYPE = "x"
NOTATIONS = {"plain": ("", "", ""), "spaced": ("", " ", ""), "dashed": ("", "-", ""), "bracketed": ("(", "", ")")}
"""Forms of a solution: what stands in front of its steps, between them and behind them."""
MARKS = " ()-"
MAX_LENGTH = 8
"""Characters of a written solution at most; 74 has four with marks, 7x4 in brackets five."""


def write_solution(solution: str, notation: str) -> str:
    """Write a solution in a notation: 74 is 74, 7 4, 7-4 or (74)."""
    first, between, last = NOTATIONS[notation]
    return first + between.join(solution) + last


def read_solution(text: str) -> str:
    """Return the steps of a written solution, in whatever notation."""
    return re.sub(f"[{re.escape(MARKS)}]", "", text)


def is_solution(text: str) -> bool:
    """Whether a text can stand in a question: steps and marks alone, at most `MAX_LENGTH` characters."""
    return re.fullmatch(rf"[0-9{WRONG_TYPE}{re.escape(MARKS)}]{{0,{MAX_LENGTH}}}", text) is not None


def solve(operands: str) -> str:
    """Running sums modulo 10 after the first operand: 347 is solved by 74."""
    return "".join(str(total % 10) for total in accumulate(map(int, operands)))[1:]


def inject_error(operands: str, kind: str, rng: np.random.Generator) -> str:
    """Corrupt the right solution.

    Args:
        operands: of the sum.
        kind: digit, a step is wrong and later ones follow from it; type, a step is a letter; missing, a step is left
            out.
        rng: of the step and of the wrong digit.
    """
    right = solve(operands)
    step = int(rng.integers(len(right)))
    if kind == "type":
        return right[:step] + WRONG_TYPE + right[step + 1 :]
    if kind == "missing":
        return right[:step] + right[step + 1 :]
    wrong = str((int(right[step]) + int(rng.integers(1, 10))) % 10)
    return right[:step] + wrong + solve(wrong + operands[step + 2 :])


def find_first_error(operands: str, solution: str) -> int:
    """Number of the first step that is not the right one, from 1; 0 for the right solution."""
    right = solve(operands)
    places = [i for i, step in enumerate(right) if solution[i : i + 1] != step]
    return places[0] + 1 if places else len(right) + 1 if len(solution) > len(right) else 0


def count_right_steps(operands: str, solution: str) -> int:
    """Steps before the first error."""
    error = find_first_error(operands, solution)
    return error - 1 if error else len(solve(operands))
