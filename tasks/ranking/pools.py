"""Pools of candidates with a hidden best one: of `c3 a7 f1 +` a is the best, and any other one may be removed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from mmrl.core.errors import check_fraction
from mmrl.core.rng import derive_rng
from mmrl.core.types import Prompt
from tasks.checks import check_range, final_line
from tasks.generated import GeneratedTask, ask_user, to_tuples

NAMES = "abcdefghij"


@dataclass(frozen=True)
class Candidates:
    """Candidates (name, value) in the order in which they are shown, and whether the largest value is the best."""

    pairs: tuple[tuple[str, int], ...]
    rising: bool

    def ranking(self) -> list[str]:
        """Names, the best first."""
        return [name for name, _ in sorted(self.pairs, key=lambda pair: pair[1], reverse=self.rising)]


@dataclass(frozen=True)
class Pools(GeneratedTask):
    """Pools of candidates of which one is to be removed, or which are to be ranked; no two have one value.

    Training pools have any size of `candidates`, as after removals; held-out ones the largest. `info["gold"]` is the
    best candidate, that with the largest value behind `+`, the smallest behind `-`.

    Args:
        candidates: fewest and most in a pool.
        form: of the demonstrations: a `removal`, in tags with the worst candidate as its thought, or a `ranking`.
        tags: of the demonstrations: begin and end of the thought, begin and end of the answer.
        mistakes: probability that a demonstration removes a random candidate, or is a random order.
    """

    candidates: Sequence[int] = (2, 6)
    form: Literal["removal", "ranking"] = "removal"
    tags: Sequence[str] = ("(", ")", "[", "]")
    mistakes: float = 0.0

    name = "pools"

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "candidates", "tags")
        check_range(self.name, "candidates", self.candidates, 2, len(NAMES))
        check_fraction(f"task {self.name!r}:", mistakes=self.mistakes)
        if self.form not in ("removal", "ranking") or len(self.tags) != 4:
            raise ValueError(f"task {self.name!r}: form must be removal or ranking, and tags four texts")

    def draw(self, rng: np.random.Generator) -> Candidates:
        fewest, most = self.candidates
        count = int(rng.integers(fewest, most + 1)) if self.split == "train" else most
        names, values = rng.permutation(len(NAMES))[:count], rng.permutation(10)[:count]
        return Candidates(tuple((NAMES[n], int(v)) for n, v in zip(names, values)), bool(rng.integers(2)))

    def split_key(self, problem: Candidates) -> str:
        return f"{sorted(problem.pairs)}"

    def write_prompt(self, problem: Candidates, key: str) -> Prompt:
        ranking = problem.ranking()
        info = {"candidates": [name for name, _ in problem.pairs], "gold": ranking[0], "problem": problem}
        return Prompt(key, ask_user(write_pool(problem)), answer=" ".join(ranking), info=info)

    def with_pool(self, prompt: Prompt, pool: Sequence[str]) -> Prompt:
        """Return the prompt with these of its candidates."""
        problem: Candidates = prompt.info["problem"]
        left = replace(problem, pairs=tuple(pair for pair in problem.pairs if pair[0] in pool))
        return self.write_prompt(left, prompt.key)

    def demonstrate(self, index: int) -> str:
        problem = self.problem(index)
        rng = derive_rng(self.name, "mistakes", self.split, self.seed, index)
        ranking = problem.ranking()
        if rng.random() < self.mistakes:
            ranking = [ranking[i] for i in rng.permutation(len(ranking))]
        if self.form == "ranking":
            return " ".join(ranking)
        begin, end, first, last = self.tags
        return f"{begin}{ranking[-1]}{dict(problem.pairs)[ranking[-1]]}{end}{first}{ranking[-1]}{last}"

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """Scores of a ranking: `exact`, the best is first; `reciprocal_rank` of the best. 0 without each name once."""
        ranking, right = final_line(answer).split(), prompt.answer.split()
        if sorted(ranking) != sorted(right):
            return {"exact": 0.0, "reciprocal_rank": 0.0}
        place = ranking.index(right[0])
        return {"exact": float(place == 0), "reciprocal_rank": 1 / (place + 1)}


def write_pool(problem: Candidates) -> str:
    """Write a pool as a policy reads it."""
    return " ".join([*(f"{name}{value}" for name, value in problem.pairs), "+" if problem.rising else "-"])
