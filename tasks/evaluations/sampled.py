"""Judge solutions of which some wrong ones were written by other policies, not injected."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import ConfigError, check_fraction
from mmrl.files.foreign import SMALL, read_foreign
from mmrl.files.strict_json import need_object, parse_json
from tasks.evaluations.solutions import is_solution, read_solution, solve
from tasks.evaluations.task import OPERANDS, Evaluations
from tasks.generated import to_tuples

_REMEDY = "give the rows of a sample stage of task SumSolutions"


@functools.cache
def read_errors(paths: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Read the wrong answers of sampled rows: operands and solution, as it was written.

    The truth grades them, whatever scores the rows have. Right answers are left out, and so are those that have other
    characters than solutions.
    """
    errors = []
    for path in paths:
        for number, line in enumerate(read_foreign(path, _REMEDY, SMALL).splitlines(), start=1):
            place = f"{path}, line {number}"
            row = need_object(parse_json(line, place, _REMEDY), place, _REMEDY)
            messages, answer = row.get("prompt"), row.get("completion")
            text = str(messages[-1].get("content")) if isinstance(messages, list) and messages else ""
            operands = re.fullmatch(rf"(\d{{{OPERANDS}}})=", text)
            if operands is None or not isinstance(answer, str):
                raise ConfigError(f"{place} asks for no sum of {OPERANDS} digits, as 347=; {_REMEDY}")
            if is_solution(answer) and read_solution(answer) != solve(operands[1]):
                errors.append((operands[1], answer))
    if not errors:
        raise ConfigError(f"task 'evaluations': {list(paths)} have no wrong answer to judge; sample more of them")
    return tuple(errors)


@dataclass(frozen=True)
class SampledEvaluations(Evaluations):
    """Solutions of sums to judge, with wrong ones that other policies sampled beside injected errors.

    Sums of sampled rows are training problems, so that a held-out problem has an injected error.

    Args:
        answers: files of rows that a sample stage of `SumSolutions` wrote.
        sampled: share of the problems whose wrong solution is one of them.
    """

    answers: Sequence[str] = ()
    sampled: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "answers")
        check_fraction(f"task {self.name!r}:", sampled=self.sampled)
        if not self.answers:
            raise ConfigError(f"task {self.name!r}: answers is empty; name a file of rows, or take Evaluations")

    def draw_error(self, rng: np.random.Generator) -> tuple[str, str]:
        if rng.random() < self.sampled:
            errors = read_errors(self.answers)
            return errors[int(rng.integers(len(errors)))]
        return super().draw_error(rng)
