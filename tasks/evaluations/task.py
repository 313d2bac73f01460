"""Judge solutions of sums in five formats: v347:74? is answered 74>y, the right steps and then the verdict."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import ConfigError, check_fraction
from mmrl.core.types import Prompt
from tasks.checks import final_line
from tasks.evaluations.solutions import (
    ERRORS,
    NOTATIONS,
    count_right_steps,
    find_first_error,
    inject_error,
    read_solution,
    solve,
    write_solution,
)
from tasks.generated import GeneratedTask, ask_user, to_tuples

OPERANDS = 3
VERDICTS = {"pair": "12", "verify": "yn", "reference": "yn", "step": "012", "rating": "012"}
"""The verdicts of each format."""
_MARKS = {"pair": "p", "verify": "v", "reference": "r", "step": "s", "rating": "g"}


@dataclass(frozen=True)
class Problem:
    """A sum, the solutions to judge as they are written, the verdict, and whether the verdict alone is asked for."""

    form: str
    operands: str
    solutions: tuple[str, ...]
    verdict: str
    direct: bool


@dataclass(frozen=True)
class Evaluations(GeneratedTask):
    """Solutions of sums of three digits modulo 10, of which some have injected errors, to judge in five formats.

    pair: which of two solutions is right, one of which is; verify: whether a solution is right; reference: the same
    with the right result beside it; step: the number of the first wrong step, 0 for none; rating: the number of steps
    before the first error. Problems take the formats in turn. The sums of a split are in no other split.

    Args:
        formats: of the problems.
        errors: kinds of injected errors: digit, type, missing.
        wrong: share of the solutions with an error, where the format leaves it open.
        direct: share of the problems that ask for the verdict alone, with ! in place of ?.
        notations: in one of which each solution is written: plain, spaced, dashed, bracketed.
    """

    formats: Sequence[str] = tuple(VERDICTS)
    errors: Sequence[str] = ERRORS
    wrong: float = 0.5
    direct: float = 0.0
    notations: Sequence[str] = ("plain",)

    name = "evaluations"

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "formats", "errors", "notations")
        check_fraction(f"task {self.name!r}:", wrong=self.wrong, direct=self.direct)
        for option, known in (("formats", tuple(VERDICTS)), ("errors", ERRORS), ("notations", tuple(NOTATIONS))):
            values = getattr(self, option)
            if not values or not set(values) <= set(known):
                raise ConfigError(f"task {self.name!r}: {option} must be one or more of {known}, got {list(values)}")

    def problem(self, index: int) -> Problem:
        drawn = super().problem(index)
        return self._judge(drawn, self.formats[index % len(self.formats)])

    def draw(self, rng: np.random.Generator) -> Problem:
        operands, corrupt = self.draw_error(rng)
        right = self._write(solve(operands), rng)
        pair = (corrupt, right) if rng.random() < self.wrong else (right, corrupt)
        return Problem("", operands, pair, "", bool(rng.random() < self.direct))

    def draw_error(self, rng: np.random.Generator) -> tuple[str, str]:
        """Draw the operands of a sum, and a written solution that is wrong."""
        operands = "".join(map(str, rng.integers(10, size=OPERANDS)))
        corrupt = inject_error(operands, self.errors[int(rng.integers(len(self.errors)))], rng)
        return operands, self._write(corrupt, rng)

    def _write(self, solution: str, rng: np.random.Generator) -> str:
        """A solution in one of the notations; nothing is drawn for a single one."""
        number = int(rng.integers(len(self.notations))) if len(self.notations) > 1 else 0
        return write_solution(solution, self.notations[number])

    def _judge(self, drawn: Problem, form: str) -> Problem:
        """The problem in a format, with its verdict."""
        operands, solution = drawn.operands, read_solution(drawn.solutions[0])
        right = solution == solve(operands)
        if form == "pair":
            verdict = "1" if right else "2"
        elif form == "step":
            verdict = str(find_first_error(operands, solution))
        elif form == "rating":
            verdict = str(count_right_steps(operands, solution))
        else:
            verdict = "y" if right else "n"
        solutions = drawn.solutions if form == "pair" else drawn.solutions[:1]
        return Problem(form, operands, solutions, verdict, drawn.direct)

    def split_key(self, problem: Problem) -> str:
        return problem.operands

    def write_prompt(self, problem: Problem, key: str) -> Prompt:
        reference = f"={solve(problem.operands)[-1]}" if problem.form == "reference" else ""
        end = "!" if problem.direct else "?"
        text = f"{_MARKS[problem.form]}{problem.operands}:{','.join(problem.solutions)}{reference}{end}"
        info = {"format": problem.form, "steps": solve(problem.operands), "direct": problem.direct}
        return Prompt(key, ask_user(text), answer=problem.verdict, info=info)

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: the verdict is right, whatever the reasons before it are; format: reasons, > and a verdict of the
        format, or the verdict alone where that is asked for; reasons: the steps before the verdict are right.
        """
        reasons, verdict = self._read(final_line(answer), prompt)
        return {
            "exact": float(verdict == prompt.answer),
            "format": float(verdict is not None),
            "reasons": float(
                verdict is not None and reasons == ("" if prompt.info["direct"] else prompt.info["steps"])
            ),
        }

    def _read(self, text: str, prompt: Prompt) -> tuple[str, str | None]:
        """Reasons and verdict of a reply; no verdict where it is unreadable."""
        verdicts = VERDICTS[prompt.info["format"]]
        reasons = "" if prompt.info["direct"] else r"([0-9]{1,4})>"
        match = re.fullmatch(rf"{reasons}([{verdicts}])", text)
        if match is None:
            return "", None
        return ("", match[1]) if prompt.info["direct"] else (match[1], match[2])

    def demonstrate(self, index: int) -> str:
        problem = self.problem(index)
        reasons = "" if problem.direct else f"{solve(problem.operands)}>"
        return self.write_answer(reasons + problem.verdict)

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        verdicts = VERDICTS[prompt.info["format"]]
        reasons = "" if prompt.info["direct"] else "".join(map(str, rng.integers(10, size=OPERANDS - 1))) + ">"
        return self.write_answer(reasons + verdicts[int(rng.integers(len(verdicts)))])
