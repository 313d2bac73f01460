"""Make a target out of given numbers, such as 24 out of 6, 9 and 5: 6*(9-5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from mmrl.core.errors import check_interval
from mmrl.core.rng import derive_rng
from mmrl.core.types import Episode, Prompt
from tasks.checks import check_range, reply_text
from tasks.countdown.search import (
    count_backtracks,
    draw_failures,
    draw_path,
    get_result,
    list_failures,
    solve,
    start,
    write_trace,
)
from tasks.countdown.verify import verify
from tasks.generated import GeneratedTask, ask_user, to_tuples

MOST = 10  # failed attempts that every problem has


@dataclass(frozen=True)
class Countdown(GeneratedTask):
    """Countdown: an expression of all the given numbers, each once, whose value is the target.

    A set of numbers with its target is in one split alone. Demonstrations may show a search: failed attempts, each
    given up by a line such as `back 6 9 5`, and the same solution whatever their number is. Source: Cai et al., "How
    Much Backtracking is Enough? Exploring the Interplay of SFT and RL in Enhancing LLM Reasoning", arXiv 2505.24273.

    Args:
        numbers: fewest and most numbers of a problem, from 3 to 5.
        largest: of the numbers; the smallest is 1.
        targets: smallest and largest target.
        steps: demonstrations write the operations of the solution, one a line, before the expression.
        backtracks: failed attempts that a demonstration shows among the steps, from 0 to 10.
        mismatched: a demonstration is that of the following problem, so that its structure is all that is right in it.
        question: the user's turn; {numbers} and {target} stand for those of the problem.
    """

    numbers: Sequence[int] = (3, 3)
    largest: int = 9
    targets: Sequence[int] = (10, 50)
    steps: bool = True
    backtracks: int = 0
    mismatched: bool = False
    question: str = "{numbers}={target}?"

    name = "countdown"

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "numbers", "targets")
        check_range(self.name, "numbers", self.numbers, 3, 5)
        check_range(self.name, "targets", self.targets, 1, 10_000)
        check_interval(f"task {self.name!r}:", "[2, 100]", largest=self.largest)
        check_interval(f"task {self.name!r}:", f"[0, {MOST}]", backtracks=self.backtracks)
        if self.backtracks and not self.steps:
            raise ValueError(
                f"task {self.name!r}: backtracks={self.backtracks} needs steps=true, among which they stand"
            )
        if any(self.question.count(f"{{{place}}}") != 1 for place in ("numbers", "target")):
            raise ValueError(
                f"task {self.name!r}: question must hold {{numbers}} and {{target}} once each, got {self.question!r}"
            )

    def draw(self, rng: np.random.Generator) -> tuple[tuple[int, ...], int] | None:
        count = int(rng.integers(self.numbers[0], self.numbers[1], endpoint=True))
        numbers = tuple(int(n) for n in rng.integers(1, self.largest, endpoint=True, size=count))
        target = get_result(draw_path(rng, start(numbers)))
        if not self.targets[0] <= target <= self.targets[1]:
            return None
        solution = solve(numbers, target)
        assert solution is not None
        failures = list(islice(list_failures(start(numbers), solution[0], target), MOST))
        return (numbers, target) if len(failures) == MOST else None

    def split_key(self, problem: tuple[tuple[int, ...], int]) -> str:
        numbers, target = problem
        return f"{sorted(numbers)} {target}"

    def write_prompt(self, problem: tuple[tuple[int, ...], int], key: str) -> Prompt:
        numbers, target = problem
        question = self.question.replace("{numbers}", " ".join(map(str, numbers))).replace("{target}", str(target))
        solution = solve(numbers, target)
        assert solution is not None
        info = {"numbers": numbers, "target": target}
        return Prompt(key, ask_user(question), answer=solution[-1].left[0].expression, info=info)

    def score(self, episode: Episode) -> dict[str, float]:
        """Score an answer; info["counts"] has its number of `backtracks`, lines that begin with the word back."""
        counts = {**episode.info.get("counts", {}), "backtracks": count_backtracks(reply_text(episode))}
        episode.info["counts"] = counts
        return super().score(episode)

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        return verify(answer, prompt.info["numbers"], prompt.info["target"])

    def demonstrate(self, index: int) -> str:
        position = (index + 1) % len(self) if self.mismatched else index
        numbers, target = self.problem(position)
        solution = solve(numbers, target)
        assert solution is not None
        answer = self.write_answer(solution[-1].left[0].expression)
        if not self.steps:
            return answer
        rng = derive_rng(self.name, "backtracks", self.split, self.seed, position)
        failures = draw_failures(rng, numbers, solution, self.backtracks)
        return f"{write_trace(numbers, solution, failures)}\n{answer}"

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        return self.write_answer(draw_path(rng, start(prompt.info["numbers"]))[-1].left[0].expression)
