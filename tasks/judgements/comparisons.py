"""Say which of two sentences is better by a principle: +b baba kade? is answered 1; and ask a pairwise judge that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import ConfigError
from mmrl.core.types import Episode, Prompt
from mmrl.rewards.judges.graded import AnswerGrader
from mmrl.rewards.judges.labels import read_labels
from mmrl.rewards.judges.questions import Question
from tasks.checks import final_line
from tasks.generated import ask_user
from tasks.judgements.principles import PRINCIPLE, write_question
from tasks.judgements.task import Judgements, Problem

LABELS = ("1", "2")


@dataclass(frozen=True)
class Comparisons(Judgements):
    """Pairs of sentences of the language of `tasks.grammar` with different grades by a stated principle.

    The reply is the label of the better one, 1 or 2. Problems 2 i and 2 i + 1 are one pair in both orders, so that a
    judge that learns them prefers no place. Of `Judgements` it takes principles, combined and broken.
    """

    both_orders: bool = True

    name = "comparisons"

    def __post_init__(self) -> None:
        if self.candidates != 2 or self.fewest not in (None, 2) or self.ranked or self.binary or self.reasons:
            raise ConfigError(
                f"task {self.name!r}: two answers are compared by a label; leave candidates, fewest, ranked, binary "
                "and reasons as they are, or take task=judgements"
            )
        super().__post_init__()

    def write_prompt(self, problem: Problem, key: str) -> Prompt:
        question = write_question(problem.principle, problem.answers)
        info = {"grades": problem.grades, "principle": problem.principle}
        return Prompt(key, ask_user(question), answer=self._write(problem.grades), info=info)

    def _write(self, grades: Sequence[int], reasons: str = "") -> str:
        return LABELS[int(grades[1] > grades[0])]

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: the label of the better sentence; format: one of the labels."""
        label = final_line(answer)
        return {"exact": float(label == prompt.answer), "format": float(label in LABELS)}

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        return self.write_answer(LABELS[int(rng.integers(2))])


@dataclass(frozen=True)
class PrincipleChoice(AnswerGrader):
    """Asks a judge that learned `Comparisons`: +b badi kabe? The grades are the probabilities of the labels 1 and 2.

    Args:
        principle: as +b or +b-n.
    """

    principle: str

    high = 1.0

    def __post_init__(self) -> None:
        if not PRINCIPLE.fullmatch(self.principle):
            raise ConfigError(
                f"principle_choice.principle must be + or - and a letter, as +b-n; got {self.principle!r}"
            )

    def ask(self, episode: Episode, answers: Sequence[str]) -> Question:
        text = write_question(self.principle, [final_line(answer) for answer in answers])
        return Question(text, lambda reply: read_labels(reply, LABELS), options=LABELS)
