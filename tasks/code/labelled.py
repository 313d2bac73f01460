"""Programs with one wrong step, and for each line whether the program can still be completed from there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import check_interval
from tasks.code.driver import encode
from tasks.code.generator import break_program, run_trusted
from tasks.code.task import Code, Problem
from tasks.step_labels import LabelledSteps

_DRAWS = 20  # of a change until the outputs differ


@dataclass(frozen=True)
class LabelledPrograms(LabelledSteps, Code):
    """Programs of `Code`, of which a share is broken as those of `repair` are: a wrong step, a line less, or a slip.

    A line is right where all lines up to it are those of the right program: the lines after the first wrong one do not
    lead to it any more. Some of them could be mended by later lines, which the labels do not know.

    Args:
        error_fraction: share of the broken programs.
    """

    error_fraction: float = 0.75

    name = "code"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval(f"task {self.name!r}:", "[0, 1]", error_fraction=self.error_fraction)

    def write_steps(self, problem: Problem, rng: np.random.Generator) -> tuple[list[str], list[bool]]:
        right = problem.function.program()
        program = right
        if rng.random() < self.error_fraction:
            program = self._break(problem, rng)
        lines = program.splitlines()
        alive = count_shared(lines, right.splitlines())
        return lines, [number < alive for number in range(len(lines))]

    def _break(self, problem: Problem, rng: np.random.Generator) -> str:
        """Write a program with a change that changes an output; the right program where no draw does."""
        inputs = [json.loads(value) for value in problem.inputs]
        right = problem.function.program()
        expected = _outputs(right, inputs)
        for _ in range(_DRAWS):
            program = break_program(rng, problem.function)
            if _outputs(program, inputs) != expected:
                return program
        return right


def count_shared(lines: Sequence[str], others: Sequence[str]) -> int:
    """Number of lines at the beginning that are equal."""
    pairs = list(zip(lines, others))
    return next((number for number, (line, other) in enumerate(pairs) if line != other), len(pairs))


def _outputs(program: str, inputs: list[object]) -> list[str]:
    """The outputs of a program that this task wrote, as texts."""
    outputs = run_trusted(program, inputs)
    return ["failed" if isinstance(value, Exception) else json.dumps(encode(value)) for value in outputs]
