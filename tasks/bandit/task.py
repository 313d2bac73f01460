"""Name an arm of a bandit in two digits; its reward falls with the distance from the best one."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import check_interval, check_positive
from mmrl.core.types import Prompt
from tasks.checks import final_line
from tasks.generated import GeneratedTask, ask_user

ARMS = 100


@dataclass(frozen=True)
class Problem:
    """A number, which asks for nothing, and the arm that a demonstration names."""

    number: int
    arm: int


@dataclass(frozen=True)
class Bandit(GeneratedTask):
    """Arm a of 100 has the reward exp(-((a - best) / width)^2); prompts differ in a number alone.

    Args:
        best: the arm with the reward 1.
        width: distance at which the reward is 1/e.
        data: mean of the arms in demonstrations, which are normally distributed; None demonstrates the best arm. The
            bandit is hard where it is far from `best`.
        spread: standard deviation of the arms in demonstrations.
    """

    best: int = 70
    width: float = 10.0
    data: int | None = None
    spread: float = 10.0

    name = "bandit"

    def __post_init__(self) -> None:
        super().__post_init__()
        here = f"task {self.name!r}:"
        check_interval(here, f"[0, {ARMS - 1}]", best=self.best, data=self.best if self.data is None else self.data)
        check_positive(here, width=self.width, spread=self.spread)

    def draw(self, rng: np.random.Generator) -> Problem:
        number = int(rng.integers(10_000))
        arm = self.best if self.data is None else round(rng.normal(self.data, self.spread))
        return Problem(number, min(max(arm, 0), ARMS - 1))

    def split_key(self, problem: Problem) -> str:
        return str(problem.number)

    def write_prompt(self, problem: Problem, key: str) -> Prompt:
        return Prompt(key, ask_user(f"{problem.number}:"), answer=f"{self.best:02d}")

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: the best arm; pay: the reward of the arm; valid: two digits."""
        line = final_line(answer)
        if not re.fullmatch(r"[0-9]{2}", line):
            return dict.fromkeys(("exact", "pay", "valid"), 0.0)
        return {"exact": float(int(line) == self.best), "pay": self.pay(int(line)), "valid": 1.0}

    def pay(self, arm: int) -> float:
        """Reward of an arm."""
        return math.exp(-(((arm - self.best) / self.width) ** 2))

    def demonstrate(self, index: int) -> str:
        return self.write_answer(f"{self.problem(index).arm:02d}")

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        return self.write_answer(f"{int(rng.integers(ARMS)):02d}")
