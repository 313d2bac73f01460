"""What is said about an answer, and what a policy is asked to do with it: feedback by aspects, and critiques of units.

A language of critiques is a subclass of `CritiqueForm`, one of feedback a subclass of `FeedbackForm`; `SheetFeedback`
is that of language models.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mmrl.core.errors import ConfigError
from mmrl.core.types import Episode, Prompt
from mmrl.rewards.judges.pointwise import sheet_of
from mmrl.rewards.judges.questions import Question, Reply, Sheet, Unreadable, question_of, read_number

LEVELS = 2
"""The highest of the three levels 0, 1 and 2 of an aspect."""


@dataclass(frozen=True)
class FineGrainedFeedback:
    """Levels of an answer by aspect, 0, 1 or 2 each, and the written reason."""

    levels: Mapping[str, float]
    reason: str

    @property
    def total(self) -> float:
        """Sum of the levels."""
        return sum(self.levels.values())


class FeedbackForm(ABC):
    """Base class of how a feedback model is asked about an answer, and how a policy is asked to refine it."""

    @abstractmethod
    def ask(self, episode: Episode, answer: str) -> Question:
        """The question about an answer to the prompt of an episode; its verdict is a `FineGrainedFeedback`."""

    @abstractmethod
    def write_refinement(self, episode: Episode, answer: str, feedback: FineGrainedFeedback) -> str:
        """The user's message that asks for a better answer, with the answer and the feedback on it."""


_ASPECTS = {
    "factuality": "0: it has wrong statements that matter; 1: small ones; 2: none",
    "logic": "0: its steps do not follow; 1: most of them do; 2: all of them do",
    "completeness": "0: it leaves out what matters; 1: details; 2: nothing",
}


@dataclass(frozen=True)
class SheetFeedback(FeedbackForm):
    """Asks a language model for a reason, and then for one of three levels of each aspect.

    Args:
        aspects: by name, what the levels 0, 1 and 2 mean.
        reference: show the model the right answer.
    """

    aspects: dict[str, str] = field(default_factory=lambda: dict(_ASPECTS))
    reference: bool = False

    def __post_init__(self) -> None:
        if not self.aspects or not all(name.isidentifier() for name in self.aspects):
            raise ConfigError(
                f"sheet_feedback.aspects must name one aspect or more, in letters, digits and _, each with the meaning "
                f"of its levels; got {self.aspects}"
            )

    def ask(self, episode: Episode, answer: str) -> Question:
        sheet = sheet_of(episode, self.reference)
        rubric = "\n".join(f"{name}: {levels}" for name, levels in self.aspects.items())
        task = f"Rate the answer to the question by these aspects, each with a level of 0, 1 or 2.\n{rubric}"
        lines = "\n".join(f"{name}-MARK: N" for name in self.aspects)
        verdict = f"First write what is wrong and where. Then end with these lines, where N is 0, 1 or 2:\n{lines}"
        return Question(
            sheet.format(task, verdict), lambda reply: self._read(sheet, reply), tuple(episode.prompt.images)
        )

    def _read(self, sheet: Sheet, reply: Reply) -> FineGrainedFeedback:
        values = sheet.read(reply)
        levels = {name: read_number(values, name, 0, LEVELS) for name in self.aspects}
        if fractions := [name for name, level in levels.items() if level != int(level)]:
            raise Unreadable(f"{fractions[0]}: {levels[fractions[0]]:g} is none of the levels 0, 1 and 2")
        reason = "\n".join(line for line in reply.text.splitlines() if sheet.mark not in line).strip()
        return FineGrainedFeedback(levels, reason)

    def write_refinement(self, episode: Episode, answer: str, feedback: FineGrainedFeedback) -> str:
        levels = ", ".join(f"{name} {level:g} of {LEVELS}" for name, level in feedback.levels.items())
        sheet = Sheet({"question": question_of(episode), "answer": answer, "feedback": f"{feedback.reason}\n{levels}"})
        return sheet.format("Write a better answer to the question, in which what the feedback names is put right.")


class Unit(NamedTuple):
    """A point of a critique: the part of the answer that it quotes, the kind of flaw, and what should stand there."""

    quote: str
    kind: str
    suggestion: str


class CritiqueForm(ABC):
    """Base class of a language of critiques: how they are written and read, and what a reviser does with one."""

    @abstractmethod
    def read(self, critique: str, prompt: Prompt) -> list[Unit] | None:
        """The units of a critique of the prompt's answer; None where it cannot be read."""

    @abstractmethod
    def write(self, units: Sequence[Unit], prompt: Prompt) -> str:
        """The critique with these units."""

    @abstractmethod
    def is_right(self, unit: Unit, prompt: Prompt) -> bool:
        """Whether a unit is correct, which is the judgement of the meta-critique."""

    @abstractmethod
    def write_revision(self, prompt: Prompt, critique: str) -> str:
        """The user's message that asks a reviser for a revision of the prompt's answer under a critique."""

    @abstractmethod
    def grade(self, revision: str, prompt: Prompt) -> float:
        """The grade of a revision, in [0, 10]; 10 for a right one."""
