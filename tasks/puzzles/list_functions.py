"""List functions: 312>321? is answered by the functions that make the second list of the first, such as sr."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.types import Prompt
from tasks.checks import check_range, final_line
from tasks.generated import ask_user, to_tuples
from tasks.puzzles.search import Path, SearchTree, Step
from tasks.puzzles.task import SearchTask

FUNCTIONS: Mapping[str, Callable[[str], str]] = {
    "d": lambda digits: digits[1:],  # drops the first
    "f": lambda digits: digits[-1:] + digits[:-1],  # puts the last one in front
    "i": lambda digits: "".join(str((int(digit) + 1) % 10) for digit in digits),  # adds 1, 9 becomes 0
    "r": lambda digits: digits[::-1],  # reverses
    "s": lambda digits: "".join(sorted(digits)),  # sorts
}
"""Functions of lists of digits, by their letters."""


@dataclass(frozen=True)
class FunctionSearch(SearchTree):
    """Every function can be the next one, until `length` were applied. A state is (list, functions so far)."""

    before: str
    after: str
    length: int

    def start(self) -> tuple[str, str]:
        return self.before, ""

    def steps(self, state: tuple[str, str]) -> list[Step]:
        digits, names = state
        if len(names) == self.length:
            return []
        applied = {name: function(digits) for name, function in FUNCTIONS.items()}
        return [Step(f"{name} {result}", (result, names + name)) for name, result in applied.items() if result]

    def is_solved(self, state: tuple[str, str]) -> bool:
        return state[0] == self.after and len(state[1]) == self.length

    def write(self, state: tuple[str, str]) -> str:
        return state[0]


@dataclass(frozen=True, kw_only=True)
class ListFunctions(SearchTask):
    """Find functions that make one list of digits of another, in the order in which they are applied.

    Any `length` functions that do it are right. A pair of lists is in one split alone.

    Args:
        length: number of functions of an answer.
        digits: fewest and most digits of the first list.
        question: the user's turn; {before} and {after} stand for the lists.
    """

    length: int = 2
    digits: Sequence[int] = (3, 4)
    question: str = "{before}>{after}?"

    name = "list_functions"

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "digits")
        check_range(self.name, "digits", self.digits, 2, 8)
        check_range(self.name, "length", (self.length, self.length), 2, 4)
        if any(self.question.count(f"{{{place}}}") != 1 for place in ("before", "after")):
            raise ValueError(
                f"task {self.name!r}: question must hold {{before}} and {{after}} once each, got {self.question!r}"
            )

    def draw(self, rng: np.random.Generator) -> tuple[str, str] | None:
        count = int(rng.integers(self.digits[0], self.digits[1], endpoint=True))
        before = "".join(map(str, rng.integers(10, size=count)))
        names = "".join(rng.choice(list(FUNCTIONS), self.length))
        problem = (before, apply_functions(names, before))
        return problem if problem[1] not in ("", before) and self.find_solution(problem) is not None else None

    def split_key(self, problem: tuple[str, str]) -> str:
        return " ".join(problem)

    def build_search(self, problem: tuple[str, str]) -> FunctionSearch:
        return FunctionSearch(*problem, self.length)

    def write_solution(self, problem: tuple[str, str], solution: Path) -> str:
        return solution[-1].state[1]

    def write_prompt(self, problem: tuple[str, str], key: str) -> Prompt:
        before, after = problem
        question = self.question.replace("{before}", before).replace("{after}", after)
        solution = self.find_solution(problem)
        assert solution is not None
        info = {"before": before, "after": after}
        return Prompt(key, ask_user(question), answer=self.write_solution(problem, solution), info=info)

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: 1 if the final line names `length` functions that make the second list of the first; format: 1 if it
        names `length` functions.
        """
        final = final_line(answer)
        well_formed = re.fullmatch(f"[{''.join(FUNCTIONS)}]{{{self.length}}}", final) is not None
        right = well_formed and apply_functions(final, prompt.info["before"]) == prompt.info["after"]
        return {"exact": float(right), "format": float(well_formed)}

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        return self.write_answer("".join(rng.choice(list(FUNCTIONS), self.length)))


def apply_functions(names: str, digits: str) -> str:
    """Apply functions in the order of their letters."""
    for name in names:
        digits = FUNCTIONS[name](digits)
    return digits
