"""Boolean expressions as small programs: reading, writing, truth tables, rewriting rules and wrong edits."""

from __future__ import annotations

import ast
import re
from difflib import SequenceMatcher
from itertools import product
from typing import Any

import numpy as np

NAMES = ("a", "b", "c")
Expression = Any
"""A name, ("not", x), ("and", x, y) or ("or", x, y)."""
_OPPOSITE = {"and": "or", "or": "and"}


def write(tree: Expression) -> str:
    """The text of an expression, as (a and not b)."""
    if isinstance(tree, str):
        return tree
    if tree[0] == "not":
        return f"not {write(tree[1])}"
    return f"({write(tree[1])} {tree[0]} {write(tree[2])})"


def read(text: str) -> Expression | None:
    """The expression of a text; None where it is none in `NAMES`."""
    try:
        return _convert(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _convert(node: ast.AST) -> Expression:
    if isinstance(node, ast.Name) and node.id in NAMES:
        return node.id
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return ("not", _convert(node.operand))
    if isinstance(node, ast.BoolOp):
        name = "and" if isinstance(node.op, ast.And) else "or"
        tree, *others = (_convert(value) for value in node.values)
        for other in others:
            tree = (name, tree, other)
        return tree
    raise ValueError("no boolean expression")


def truth_table(tree: Expression) -> tuple[bool, ...]:
    """Values under all assignments of `NAMES`: the tests that a program passes or fails."""

    def evaluate(part: Expression, values: dict[str, bool]) -> bool:
        if isinstance(part, str):
            return values[part]
        if part[0] == "not":
            return not evaluate(part[1], values)
        both = evaluate(part[1], values), evaluate(part[2], values)
        return all(both) if part[0] == "and" else any(both)

    return tuple(evaluate(tree, dict(zip(NAMES, values))) for values in product((False, True), repeat=len(NAMES)))


def similarity(one: str, other: str) -> float:
    """How alike two texts are in [0, 1]: twice the matching words and brackets over all."""
    words = [re.findall(r"\w+|[()]", text) for text in (one, other)]
    return SequenceMatcher(None, *words, autojunk=False).ratio()


def rewrite(tree: Expression) -> list[Expression]:
    """All expressions that one rule gives at one place, each with the truth table of `tree`.

    Rules: double negation, De Morgan's in both directions, commutativity, idempotence, absorption, and distribution in
    both directions.
    """
    if isinstance(tree, str):
        return []
    out = []
    if tree[0] == "not":
        inner = tree[1]
        if not isinstance(inner, str):
            if inner[0] == "not":
                out.append(inner[1])
            else:
                out.append((_OPPOSITE[inner[0]], ("not", inner[1]), ("not", inner[2])))
        return out + [("not", part) for part in rewrite(inner)]
    name, left, right = tree
    dual = _OPPOSITE[name]
    out.append((name, right, left))
    if left == right:
        out.append(left)
    for one, other in ((left, right), (right, left)):
        if not isinstance(other, str) and other[0] == dual:
            out.append((dual, (name, one, other[1]), (name, one, other[2])))
            if one in other[1:]:
                out.append(one)
    if not isinstance(left, str) and not isinstance(right, str):
        if left[0] == right[0] == "not":
            out.append(("not", (dual, left[1], right[1])))
        if left[0] == right[0] == dual and left[1] == right[1]:
            out.append((dual, left[1], (name, left[2], right[2])))
    out += [(name, part, right) for part in rewrite(left)] + [(name, left, part) for part in rewrite(right)]
    return [each for number, each in enumerate(out) if each != tree and each not in out[:number]]


def draw_expression(rng: np.random.Generator, operators: int) -> Expression:
    """Draw an expression with so many operators."""
    if operators == 0:
        return NAMES[int(rng.integers(len(NAMES)))]
    name = ("not", "and", "or")[int(rng.integers(3))]
    if name == "not":
        return ("not", draw_expression(rng, operators - 1))
    left = int(rng.integers(operators))
    return (name, draw_expression(rng, left), draw_expression(rng, operators - 1 - left))


def mutate(tree: Expression, rng: np.random.Generator) -> Expression:
    """Exchange one operator or one name: an edit that may change the truth table."""
    if isinstance(tree, str):
        others = [name for name in NAMES if name != tree]
        return others[int(rng.integers(len(others)))]
    if tree[0] == "not":
        return ("not", mutate(tree[1], rng)) if rng.random() < 0.7 else tree[1]
    place = int(rng.integers(3))
    if place == 0:
        return (_OPPOSITE[tree[0]], *tree[1:])
    parts = list(tree)
    parts[place] = mutate(parts[place], rng)
    return tuple(parts)
