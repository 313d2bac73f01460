"""Solve the sums whose solutions an evaluator judges: 347= is answered 74, in any notation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import ConfigError, check_fraction
from mmrl.core.rng import derive_rng
from mmrl.core.types import Prompt
from tasks.checks import final_line
from tasks.evaluations.solutions import (
    ERRORS,
    NOTATIONS,
    inject_error,
    is_solution,
    read_solution,
    solve,
    write_solution,
)
from tasks.evaluations.task import OPERANDS, Evaluations
from tasks.generated import GeneratedTask, ask_user, choose_split, to_tuples


@dataclass(frozen=True)
class SumSolutions(GeneratedTask):
    """Running sums of three digits modulo 10, step by step, in a notation that is left open.

    Held-out sums are those that `Evaluations` holds out.

    Args:
        notations: of the demonstrations, one drawn for each.
        flawed: share of the demonstrations with an error.
    """

    notations: Sequence[str] = tuple(NOTATIONS)
    flawed: float = 0.0

    name = "sum_solutions"

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "notations")
        check_fraction(f"task {self.name!r}:", flawed=self.flawed)
        if not self.notations or not set(self.notations) <= set(NOTATIONS):
            raise ConfigError(
                f"task {self.name!r}: notations must be one or more of {tuple(NOTATIONS)}, got {list(self.notations)}"
            )

    def draw(self, rng: np.random.Generator) -> str:
        return "".join(map(str, rng.integers(10, size=OPERANDS)))

    def split_key(self, problem: str) -> str:
        return problem

    def split_of(self, problem: str) -> str:
        return choose_split(Evaluations.name, self.seed, problem, self.held_out_fraction)

    def write_prompt(self, problem: str, key: str) -> Prompt:
        return Prompt(key, ask_user(f"{problem}="), answer=solve(problem), info={"operands": problem})

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: the steps are right, in whatever notation; format: steps and marks of notations alone; plain: the
        text is the reference, character by character.
        """
        text = final_line(answer)
        return {
            "exact": float(is_solution(text) and read_solution(text) == prompt.answer),
            "format": float(is_solution(text) and bool(read_solution(text))),
            "plain": float(text == prompt.answer),
        }

    def demonstrate(self, index: int) -> str:
        operands = self.problem(index)
        rng = derive_rng(self.name, "demonstration", self.split, self.seed, index)
        kind = ERRORS[int(rng.integers(len(ERRORS)))]
        solution = inject_error(operands, kind, rng) if rng.random() < self.flawed else solve(operands)
        return self.write_answer(write_solution(solution, self.notations[int(rng.integers(len(self.notations)))]))

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        return self.write_answer("".join(map(str, rng.integers(10, size=OPERANDS - 1))))
