"""Verify a solution over a dependency graph: its answer, and each of its steps."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tasks.graphs.data import Graph

_NUMBER = "0|[1-9][0-9]{0,3}"
STEP = re.compile(rf"([a-z])=(?:([a-z]|{_NUMBER})([+*-])([a-z]|{_NUMBER})=)?({_NUMBER})")
"""b=a+2=5: a quantity, its operation on quantities or numbers, and its value; a=3 where it is a number."""


@dataclass(frozen=True)
class Step:
    """One line of a solution. `operands` are the quantities that it reads."""

    name: str
    operands: frozenset[str]
    value: int


def parse_step(line: str) -> Step | None:
    """Parse a line such as b=a+2=5; None for other text. Spaces do not count."""
    match = STEP.fullmatch(line.replace(" ", ""))
    if match is None:
        return None
    name, first, _, second, value = match.groups()
    return Step(name, frozenset(operand for operand in (first, second) if operand and operand.isalpha()), int(value))


def judge_steps(lines: list[str], graph: Graph, modulus: int) -> list[str]:
    """Return a word for each line: right, wrong_value, wrong_operands, too_early, repeated, not_needed or no_step.

    A step is too early if it reads a quantity that no line before it defines. A value is compared with the right one,
    not with what follows from wrong values before it.
    """
    values = graph.values(modulus)
    parents = {node.name: node.parents for node in graph.ancestors()}
    verdicts: list[str] = []
    defined: set[str] = set()
    for line in lines:
        step = parse_step(line)
        if step is None:
            verdicts.append("no_step")
        elif step.name not in parents:
            verdicts.append("not_needed")
        elif step.name in defined:
            verdicts.append("repeated")
        else:
            word = "right" if step.value == values[step.name] else "wrong_value"
            if step.operands != parents[step.name]:
                word = "wrong_operands"
            elif not step.operands <= defined:
                word = "too_early"
            verdicts.append(word)
            defined.add(step.name)
    return verdicts


def measure_process(lines: list[str], graph: Graph, modulus: int, correct: bool) -> tuple[float, float]:
    """Return the process score and the penalty of a solution.

    penalty = wrong values + wrong operands + missing quantities + min(further lines, N) + (0 if `correct` else 1);
    process = max(0, 1 - penalty / N), with N the number of quantities that the answer needs. A step that is too early
    counts as one with wrong operands. Only the first line of a quantity counts; further ones are further lines.
    Source: Zhang et al., "On the Interplay of Pre-Training, Mid-Training, and RL on Reasoning Language Models",
    arXiv 2512.07783 (process-verified evaluation, and the reward of its published code).
    """
    values, needed = graph.values(modulus), graph.ancestors()
    parents = {node.name: node.parents for node in needed}
    verdicts = judge_steps(lines, graph, modulus)
    first: dict[str, tuple[Step, str]] = {}
    for line, verdict in zip(lines, verdicts):
        if verdict in ("right", "wrong_value", "wrong_operands", "too_early"):
            step = parse_step(line)
            assert step is not None
            first[step.name] = (step, verdict)
    wrong_values = sum(step.value != values[name] for name, (step, _) in first.items())
    wrong_operands = sum(step.operands != parents[name] or v == "too_early" for name, (step, v) in first.items())
    missing = len(needed) - len(first)
    further = min(len(lines) - len(first), len(needed))
    penalty = wrong_values + wrong_operands + missing + further + (not correct)
    return max(0.0, 1 - penalty / len(needed)), float(penalty)
