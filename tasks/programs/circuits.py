"""Circuits: a boolean expression for a truth table, judged by testbenches."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from mmrl.core.errors import check_interval
from mmrl.core.types import Prompt
from tasks.checks import check_range, final_line
from tasks.generated import GeneratedTask, ask_user, to_tuples

OPERATORS: dict[type, str] = {ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^"}
_LONGEST = 200  # characters of an expression that is read


@dataclass(frozen=True, kw_only=True)
class Circuits(GeneratedTask):
    """Expressions of inputs a, b, ..., parentheses, ~, &, | and ^ that have a given truth table: "01101001=" asks for
    a^b^c.

    The table lists the outputs for the inputs 000, 001, ..., 111, in which a is the first bit. A testbench sets one
    input to 0 or 1 and compares all outputs: three inputs have six testbenches. A table is in one split alone.

    Args:
        inputs: number of inputs, from 2 to 5.
        operations: fewest and most binary operators of the expert's expression.
    """

    inputs: int = 3
    operations: Sequence[int] = (1, 3)

    name = "circuits"

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "operations")
        check_range(self.name, "operations", self.operations, 1, 8)
        check_interval(f"task {self.name!r}:", "[2, 5]", inputs=self.inputs)

    def draw(self, rng: np.random.Generator) -> str | None:
        expression = draw_expression(rng, self.inputs, int(rng.integers(*self.operations, endpoint=True)))
        return None if len(set(evaluate(expression, self.inputs) or "")) < 2 else expression  # no constant

    def split_key(self, problem: str) -> str:
        return str(evaluate(problem, self.inputs))

    def write_prompt(self, problem: str, key: str) -> Prompt:
        table = evaluate(problem, self.inputs)
        return Prompt(key, ask_user(f"{table}="), answer=problem, info={"table": table})

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: the table is right; tests: share of testbenches that pass; format: the last line is an expression."""
        outputs = evaluate(final_line(answer), self.inputs)
        passed = run_testbenches(outputs, prompt.info["table"], self.inputs)
        tests = sum(passed) / len(passed)
        return {"exact": float(tests == 1), "tests": tests, "format": float(outputs is not None)}

    def demonstrate(self, index: int) -> str:
        return self.write_answer(self.problem(index))


def draw_expression(rng: np.random.Generator, inputs: int, operations: int) -> str:
    """Draw an expression with this number of binary operators; an input is negated in one of four places."""
    if operations == 0:
        return "~" * int(rng.random() < 0.25) + "abcde"[int(rng.integers(inputs))]
    split = int(rng.integers(operations))
    parts = [draw_expression(rng, inputs, count) for count in (split, operations - 1 - split)]
    first, second = (part if len(part) <= 2 else f"({part})" for part in parts)
    return first + "&|^"[int(rng.integers(3))] + second


def evaluate(expression: str, inputs: int) -> str | None:
    """Return the truth table of an expression as 0s and 1s; None for what is no expression of these inputs."""
    try:
        tree = ast.parse(expression.strip(), mode="eval").body if len(expression) <= _LONGEST else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    rows = list(product((0, 1), repeat=inputs))
    columns = {"abcde"[place]: [row[place] for row in rows] for place in range(inputs)}
    outputs = None if tree is None else _outputs(tree, columns)
    return None if outputs is None else "".join(map(str, outputs))


def _outputs(tree: ast.expr, columns: dict[str, list[int]]) -> list[int] | None:
    if isinstance(tree, ast.Name):
        return columns.get(tree.id)
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Invert):
        inner = _outputs(tree.operand, columns)
        return None if inner is None else [1 - bit for bit in inner]
    if not isinstance(tree, ast.BinOp) or type(tree.op) not in OPERATORS:
        return None
    first, second = _outputs(tree.left, columns), _outputs(tree.right, columns)
    if first is None or second is None:
        return None
    sign = OPERATORS[type(tree.op)]
    return [a & b if sign == "&" else a | b if sign == "|" else a ^ b for a, b in zip(first, second)]


def run_testbenches(table: str | None, right: str, inputs: int) -> list[bool]:
    """Return for each input and each of its values whether all outputs agree; all False without a table."""
    rows = list(product((0, 1), repeat=inputs))
    return [
        table is not None and all(table[i] == right[i] for i, row in enumerate(rows) if row[place] == value)
        for place in range(inputs)
        for value in (0, 1)
    ]
