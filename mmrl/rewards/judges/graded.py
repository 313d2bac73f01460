"""Grades of several answers in one question: who asks for them (`AnswerGrader`), and grades of a whole group."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mmrl.core.types import Episode
from mmrl.rewards.judges.base import JudgeForm, NoAnswer
from mmrl.rewards.judges.questions import (
    Question,
    Reply,
    Sheet,
    Unreadable,
    answer_of,
    order_by_text,
    question_of,
    read_number,
)


class AnswerGrader(ABC):
    """Base class of how a judge is asked to grade several answers to one prompt at once.

    Attributes:
        low: the worst grade.
        high: the best grade.
    """

    low: float = 0.0
    high: float = 10.0

    @abstractmethod
    def ask(self, episode: Episode, answers: Sequence[str]) -> Question:
        """The question about answers to the prompt of an episode; its verdict is a list with a grade of each."""


@dataclass(frozen=True)
class SheetGrader(AnswerGrader):
    """Asks a language model for reasons and then for a grade of each answer, by a principle in words.

    Args:
        instruction: what is graded, by which principle.
        low: the worst grade.
        high: the best grade.
        ranked: also ask for the ranking; a reply whose ranking contradicts its grades is unreadable.
    """

    instruction: str = "Grade each answer to the question: is it right, helpful and clear? Think before you grade."
    low: float = 0.0
    high: float = 10.0
    ranked: bool = False

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"reward.form.grader.low must be below high, got {self.low} and {self.high}")

    def ask(self, episode: Episode, answers: Sequence[str]) -> Question:
        places = range(1, len(answers) + 1)
        texts = {f"answer.{place}": answer for place, answer in zip(places, answers)}
        sheet = Sheet({"question": question_of(episode), **texts})
        lines = [f"grade.{place}-MARK: N" for place in places]
        verdict = f"where N is from {self.low:g} to {self.high:g}"
        if self.ranked:
            lines.append("ranking-MARK: A > B > ...")
            verdict += ", and the ranking names the number of every answer once, the best first"
        text = sheet.format(self.instruction, "\n".join(["End with these lines:", *lines, verdict + "."]))
        return Question(text, lambda reply: self._read(sheet, len(answers), reply), tuple(episode.prompt.images))

    def _read(self, sheet: Sheet, count: int, reply: Reply) -> list[float]:
        values = sheet.read(reply)
        grades = [read_number(values, f"grade.{place}", self.low, self.high) for place in range(1, count + 1)]
        if self.ranked:
            places = [place.strip() for place in values.get("ranking", "").split(">")]
            if sorted(places) != sorted(str(place) for place in range(1, count + 1)):
                raise Unreadable(f"its ranking does not name each of {count} answers once")
            ordered = [grades[int(place) - 1] for place in places]
            if any(better < worse for better, worse in itertools.pairwise(ordered)):
                raise Unreadable("its ranking contradicts its grades")
        return grades


@dataclass(frozen=True)
class ListwiseGrades(JudgeForm):
    """Score `judge` of an answer: its grade in one question about all answers to the prompt.

    The judge sees the answers in an order that is drawn from their texts, so that the place of sampling has no effect.
    Source: RewardAnything, 2025, section 3, arXiv:2506.03637.

    Args:
        grader: asks for the grades; by default from 1 to 5, with the ranking.
        name: of the score.
    """

    grader: AnswerGrader = field(default_factory=lambda: SheetGrader(low=1, high=5, ranked=True))
    name: str = "judge"

    def ask(self, group: Sequence[Episode]) -> list[Question]:
        return [self.grader.ask(group[0], [answer_of(group[i]) for i in order_by_text(group)])]

    def combine(self, group: Sequence[Episode], verdicts: Sequence[Any]) -> list[dict[str, float] | NoAnswer]:
        grades = verdicts[0]
        if isinstance(grades, NoAnswer):
            return [grades] * len(group)
        by_episode = dict(zip(order_by_text(group), grades, strict=True))
        return [{self.name: by_episode[i]} for i in range(len(group))]
