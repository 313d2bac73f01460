"""Comparisons of two answers by the log-probs of a label, the first word that a judge would write."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mmrl.core.types import Episode
from mmrl.rewards.judges.graded import AnswerGrader
from mmrl.rewards.judges.questions import Question, Reply, Sheet, question_of


def read_labels(reply: Reply, labels: tuple[str, str]) -> list[float]:
    """Probabilities of two labels as the first word of a reply, which sum to 1: sigmoid of the difference of logs."""
    lead = reply.options[labels[0]] - reply.options[labels[1]]
    first = 0.5 * (1 + math.tanh(lead / 2))
    return [first, 1 - first]


@dataclass(frozen=True)
class LabelGrader(AnswerGrader):
    """Asks a language model which of two answers is better; the grades are the probabilities of the labels A and B.

    Args:
        instruction: what makes an answer the better one.
    """

    instruction: str = "Which of the two answers to the question is better: right, helpful and clear?"

    high = 1.0

    def ask(self, episode: Episode, answers: Sequence[str]) -> Question:
        sheet = Sheet({"question": question_of(episode), "answer.A": answers[0], "answer.B": answers[1]})
        text = sheet.format(f"{self.instruction} Reply with one letter, A or B.")
        images = tuple(episode.prompt.images)
        return Question(text, lambda reply: read_labels(reply, ("a", "b")), images, options=("a", "b"))
