"""Grades of single answers: a number, or the log-odds of yes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mmrl.core.types import Episode
from mmrl.rewards.judges.base import JudgeForm, NoAnswer
from mmrl.rewards.judges.questions import Question, Reply, Sheet, answer_of, question_of, read_number, reference_of


def sheet_of(episode: Episode, reference: bool) -> Sheet:
    """The sheet with question and answer of an episode, and the right answer where it is shown."""
    texts = {"question": question_of(episode)}
    if reference:
        texts["reference"] = reference_of(episode)
    return Sheet({**texts, "answer": answer_of(episode)})


@dataclass(frozen=True)
class Pointwise(JudgeForm):
    """Score `judge` of an answer: the grade that the judge gives it, scaled from [low, high] to [0, 1].

    Args:
        instruction: what is graded, and by which standard.
        low: the worst grade.
        high: the best grade.
        reference: show the judge the right answer.
        name: of the score.
    """

    instruction: str = "Grade the answer to the question: is it right, helpful and clear?"
    low: float = 0.0
    high: float = 10.0
    reference: bool = False
    name: str = "judge"

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"reward.form.low must be below reward.form.high, got {self.low} and {self.high}")

    def ask(self, group: Sequence[Episode]) -> list[Question]:
        return [self._ask(episode) for episode in group]

    def _ask(self, episode: Episode) -> Question:
        sheet = sheet_of(episode, self.reference)
        verdict = f"End with one line that reads\ngrade-MARK: N\nwhere N is from {self.low:g} to {self.high:g}."
        return Question(
            sheet.format(self.instruction, verdict), lambda reply: self._read(sheet, reply), _images(episode)
        )

    def _read(self, sheet: Sheet, reply: Reply) -> float:
        return (read_number(sheet.read(reply), "grade", self.low, self.high) - self.low) / (self.high - self.low)

    def combine(self, group: Sequence[Episode], verdicts: Sequence[Any]) -> list[dict[str, float] | NoAnswer]:
        return [verdict if isinstance(verdict, NoAnswer) else {self.name: verdict} for verdict in verdicts]


@dataclass(frozen=True)
class YesNo(JudgeForm):
    """Score `judge` of an answer: log p(yes) - log p(no) of the first word that the judge would write.

    It needs the log-probs of the judge's first token: a model in the process has them, and servers with
    `top_logprobs`. Where a server lists only one of the two words, the other one counts as the least likely listed
    token, which bounds the odds.

    Args:
        instruction: a question that yes or no answers.
        probability: give p(yes) / (p(yes) + p(no)), in [0, 1], in place of the log-odds.
        reference: show the judge the right answer.
        name: of the score.
    """

    reads_options = True

    instruction: str = "Is the answer to the question right?"
    probability: bool = False
    reference: bool = False
    name: str = "judge"

    def ask(self, group: Sequence[Episode]) -> list[Question]:
        return [self._ask(episode) for episode in group]

    def _ask(self, episode: Episode) -> Question:
        text = sheet_of(episode, self.reference).format(f"{self.instruction} Reply with one word, yes or no.")
        return Question(text, self._read, _images(episode), options=("yes", "no"))

    def _read(self, reply: Reply) -> float:
        odds = reply.options["yes"] - reply.options["no"]
        return 1 / (1 + math.exp(-odds)) if self.probability else odds

    def combine(self, group: Sequence[Episode], verdicts: Sequence[Any]) -> list[dict[str, float] | NoAnswer]:
        return [verdict if isinstance(verdict, NoAnswer) else {self.name: verdict} for verdict in verdicts]


def _images(episode: Episode) -> tuple[Any, ...]:
    return tuple(episode.prompt.images)
