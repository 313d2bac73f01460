"""Base of tasks whose problems are drawn from a seeded generator."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from mmrl.core.errors import check_at_least, check_interval
from mmrl.core.rng import derive_rng, derive_seed
from mmrl.core.types import Prompt, Task
from tasks.answers import AnswerTask
from tasks.checks import check_index, check_split

_DRAWS = 2000  # of one problem until it belongs to the split


@dataclass(frozen=True, kw_only=True)
class SeededTask(Task):
    """Task whose problems are drawn from a seeded generator.

    A hash of what is held out, such as the functions or the schema of a problem, says which split a problem belongs to.
    So the splits are disjoint whatever their sizes are.

    Args:
        count: number of training problems.
        held_out: number of held-out problems.
        split: "train" or "held_out".
        held_out_fraction: share of what is held out, such as functions or schemas.
        seed: of the problems and the split; part of the task, not of the run.
    """

    count: int = 10_000
    held_out: int = 500
    split: str = "train"
    held_out_fraction: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        check_split(self.name, self.split)
        check_interval(f"task {self.name!r}:", "(0, 1)", held_out_fraction=self.held_out_fraction)
        check_at_least(1, f"task {self.name!r}:", count=self.count, held_out=self.held_out)

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> Any:
        """Draw a problem of any split; None if the draw gives no usable one."""

    @abstractmethod
    def split_key(self, problem: Any) -> str:
        """Return the text that decides the split of a problem: no text is in both splits."""

    @abstractmethod
    def write_prompt(self, problem: Any, key: str) -> Prompt:
        """Write the prompt of a problem, with the answer and what the verifier needs."""

    def split_of(self, problem: Any) -> str:
        """Return the split that a problem belongs to."""
        return choose_split(self.name, self.seed, self.split_key(problem), self.held_out_fraction)

    def problem(self, index: int) -> Any:
        """Draw from the random stream of an index until a problem belongs to this split."""
        check_index(self, index)
        rng = derive_rng(self.name, self.split, self.seed, index)
        for _ in range(_DRAWS):
            problem = self.draw(rng)
            if problem is not None and self.split_of(problem) == self.split:
                return problem
        raise ValueError(
            f"task {self.name!r}: {_DRAWS} draws gave no problem of the split {self.split!r}; there are too few "
            "distinct problems, so widen the arguments of the task or change held_out_fraction"
        )

    def __len__(self) -> int:
        return self.count if self.split == "train" else self.held_out

    def __getitem__(self, index: int) -> Prompt:
        return self.write_prompt(self.problem(index), f"{self.name}/{self.split}/{index}")

    def on(self, split: str) -> Self:
        return replace(self, split=split)


@dataclass(frozen=True, kw_only=True)
class GeneratedTask(SeededTask, AnswerTask):
    """Task of generated problems with one answer in text, such as questions."""

    def __post_init__(self) -> None:
        SeededTask.__post_init__(self)
        AnswerTask.__post_init__(self)

    def __getitem__(self, index: int) -> Prompt:
        return SeededTask.__getitem__(self, index)


def choose_split(name: str, seed: int, text: str, held_out_fraction: float) -> str:
    """Return the split of a problem of a task from a hash of the text that decides it."""
    level = derive_seed(name, "split", seed, text) / 2**64
    return "held_out" if level < held_out_fraction else "train"


def to_tuples(task: Any, *names: str) -> None:
    """Turn lists of a frozen task into tuples, since configurations give lists and a list is not hashable."""
    for name in names:
        object.__setattr__(task, name, tuple(getattr(task, name)))


def ask_user(question: str) -> tuple[dict[str, Any]]:
    """Return the messages of a prompt that is one turn of the user."""
    return ({"role": "user", "content": question},)


def ask_about_images(question: str, count: int = 1) -> tuple[dict[str, Any]]:
    """Return the messages of a prompt that shows images before the user's question."""
    return ({"role": "user", "content": [{"type": "image"}] * count + [{"type": "text", "text": question}]},)
