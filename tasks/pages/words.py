"""Words for the directions of stripes, and the task of telling which of them mean the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mmrl.core.types import Episode, Prompt
from mmrl.rewards.judges.questions import answer_of, reference_of
from tasks.generated import ask_user
from tasks.yes_no import YesNoTask, YesNoVerdict

WORDS: dict[str, tuple[str, ...]] = {
    "horizontal": ("flat", "level", "even"),
    "rising": ("rise", "climb", "up"),
    "vertical": ("tall", "erect", "plumb"),
    "falling": ("fall", "drop", "down"),
}
"""Words for each direction, which an answer may take in place of one another."""
DIRECTION_OF = {word: direction for direction, words in WORDS.items() for word in words}
_FORMS = ("{}", "{}.", "it is {}", "they are {}", "so {}", "{}, I think", "all {}", "{} stripes")
_SHOWN = 24  # characters of an answer that the judge reads


def means(answer: str, reference: str) -> bool:
    """Whether an answer is a word for the direction that the reference is a word for."""
    return DIRECTION_OF.get(answer) is not None and DIRECTION_OF.get(answer) == DIRECTION_OF[reference]


@dataclass(frozen=True)
class Meaning:
    """An answer in some form, and the right one."""

    word: str
    form: str
    reference: str


@dataclass(frozen=True)
class Meanings(YesNoTask):
    """Whether two words for a direction mean the same, y or n: what a judge of the answers to `Pages` has to learn.

    Args:
        right: share of the answers that mean the same as the reference.
    """

    right: float = 0.5

    name = "meanings"

    def draw(self, rng: np.random.Generator) -> Meaning:
        names = list(DIRECTION_OF)
        reference = names[int(rng.integers(len(names)))]
        same = WORDS[DIRECTION_OF[reference]]
        pool = same if rng.random() < self.right else [name for name in names if name not in same]
        return Meaning(pool[int(rng.integers(len(pool)))], _FORMS[int(rng.integers(len(_FORMS)))], reference)

    def split_key(self, problem: Meaning) -> str:
        return write_question(problem.form.format(problem.word), problem.reference)

    def write_prompt(self, problem: Meaning, key: str) -> Prompt:
        label = "y" if means(problem.word, problem.reference) else "n"
        question = write_question(problem.form.format(problem.word), problem.reference)
        return Prompt(key, ask_user(question), answer=label)


def write_question(answer: str, reference: str) -> str:
    """Write a question: it is flat|level?"""
    return f"{' '.join(answer.split())[:_SHOWN]}|{reference}?"


@dataclass(frozen=True)
class MeaningVerdict(YesNoVerdict):
    """Score `judge` of an answer: 1 where a judge that learned `Meanings` finds y more likely than n, else 0.

    Args:
        name: of the score.
    """

    def write_question(self, episode: Episode) -> str:
        return write_question(answer_of(episode), reference_of(episode))
