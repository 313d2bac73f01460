"""Write a trace of letters in which the planted ones of a prompt stand in order: 314= wants j, d and m somewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import ConfigError, check_at_least
from mmrl.core.types import Prompt
from tasks.generated import GeneratedTask, ask_user, to_tuples

ALPHABET = "abcdefghij"


def plant(digits: str) -> str:
    """The letters that a prompt's digits ask for: the letter number 3 d + 1 modulo 10 of each digit d, from a."""
    return "".join(ALPHABET[(3 * int(digit) + 1) % 10] for digit in digits)


def find_end(trace: str, planted: str) -> int | None:
    """Number of letters after which all planted ones have stood in order, with others between them; None for never."""
    matched = 0
    for place, letter in enumerate(trace, start=1):
        matched += letter == planted[matched]
        if matched == len(planted):
            return place
    return None


@dataclass(frozen=True)
class Planted(GeneratedTask):
    """Write a trace of `horizon` letters; each letter from the one that completes the planted ones on earns 1.

    An example trace has an effort, drawn from `efforts`: the probability that a letter is the next planted one, where
    the others are random. Several efforts make the traces of a prompt differ in what they earn, one makes them alike.
    Problems are split by their digits.

    Args:
        digits: planted letters of a prompt.
        horizon: letters of a trace; those beyond it do not count.
        efforts: of the example traces, in (0, 1].
    """

    digits: int = 3
    horizon: int = 12
    efforts: Sequence[float] = (0.1, 0.8)

    name = "planted"

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "efforts")
        check_at_least(1, f"task {self.name!r}:", digits=self.digits)
        check_at_least(self.digits, f"task {self.name!r}:", horizon=self.horizon)
        if not self.efforts or not all(0 < effort <= 1 for effort in self.efforts):
            raise ConfigError(f"task {self.name!r}: efforts must be in (0, 1], got {list(self.efforts)}")

    def draw(self, rng: np.random.Generator) -> tuple[str, str]:
        digits = "".join(map(str, rng.integers(10, size=self.digits)))
        planted, effort = plant(digits), float(rng.choice(self.efforts))
        trace, matched = "", 0
        for _ in range(self.horizon):
            hit = matched < self.digits and rng.random() < effort
            trace += planted[matched] if hit else ALPHABET[int(rng.integers(len(ALPHABET)))]
            matched += matched < self.digits and trace[-1] == planted[matched]
        return digits, trace

    def split_key(self, problem: tuple[str, str]) -> str:
        return problem[0]

    def write_prompt(self, problem: tuple[str, str], key: str) -> Prompt:
        digits, trace = problem
        return Prompt(key, ask_user(f"{digits}="), answer=plant(digits), info={"trace": trace})

    def demonstrate(self, index: int) -> str:
        """An example trace, right or wrong."""
        return self.problem(index)[1]

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """`found`: the planted letters stand in order; `earned`: the share of the trace from there on, else 0."""
        end = find_end(answer.strip()[: self.horizon], str(prompt.answer))
        earned = 0.0 if end is None else (self.horizon - end + 1) / self.horizon
        return {"found": float(end is not None), "earned": earned}
