"""Solutions over dependency graphs with planted errors, and a label for each step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import check_interval
from tasks.graphs.data import Graph, Node, compute
from tasks.graphs.rewards import score_steps
from tasks.graphs.task import Graphs, Problem
from tasks.step_labels import LabelledSteps


@dataclass(frozen=True)
class LabelledGraphs(LabelledSteps, Graphs):
    """Solutions of `Graphs` with errors: a wrong value, another operand, a step twice or left out.

    What follows a wrong value is computed from it, as a policy would. The labels are those of the verifier.

    Args:
        error_fraction: share of the steps with an error of their own.
    """

    error_fraction: float = 0.25

    name = "graphs"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval(f"task {self.name!r}:", "[0, 1]", error_fraction=self.error_fraction)

    def write_steps(self, problem: Problem, rng: np.random.Generator) -> tuple[list[str], list[bool]]:
        steps = write_errors(problem.graph, self.modulus, self.error_fraction, rng)
        return steps, [score == 1 for score in score_steps(steps, problem.graph, self.modulus)]


def write_errors(graph: Graph, modulus: int, error_fraction: float, rng: np.random.Generator) -> list[str]:
    """Write a solution in which a share of the steps has an error."""
    steps: list[str] = []
    values: dict[str, int] = {}  # as they are written
    for node in graph.ancestors():
        error = ("value", "operand", "twice", "skip")[int(rng.integers(4))] if rng.random() < error_fraction else ""
        if error == "skip" and node.name != graph.asked:
            continue
        if error == "operand" and node.symbol:
            node = Node(node.name, _exchange(node.operands, [*values, int(rng.integers(modulus))], rng), node.symbol)
        # a quantity that was left out is read as its right value, which a policy may know without writing it
        right = graph.values(modulus)
        numbers = [values.get(o, right[o]) if isinstance(o, str) else o for o in node.operands]
        value = compute(node.symbol, numbers) % modulus
        if error == "value":
            value = (value + int(rng.integers(1, modulus))) % modulus
        values[node.name] = value
        steps += [f"{node}={value}" if node.symbol else f"{node.name}={value}"] * (2 if error == "twice" else 1)
    return steps


def _exchange(
    operands: tuple[int | str, ...], others: list[int | str], rng: np.random.Generator
) -> tuple[int | str, ...]:
    """Put another operand in the place of one of them."""
    place = int(rng.integers(len(operands)))
    other = others[int(rng.integers(len(others)))]
    return (*operands[:place], other, *operands[place + 1 :])
