"""Questions that are answered y or n, and the verdict of a judge that learned to answer them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmrl.core.types import Episode, Prompt
from mmrl.rewards.judges.base import JudgeForm, NoAnswer
from mmrl.rewards.judges.questions import Question, Reply
from tasks.checks import final_line
from tasks.generated import GeneratedTask

LABELS = ("y", "n")


@dataclass(frozen=True, kw_only=True)
class YesNoTask(GeneratedTask):
    """Base class of generated tasks whose answer is y or n: what a judge of another task's answers has to learn."""

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: the right label; format: y or n."""
        label = final_line(answer)
        return {"exact": float(label == prompt.answer), "format": float(label in LABELS)}

    def demonstrate(self, index: int) -> str:
        return self.write_answer(str(self[index].answer))

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        return self.write_answer(LABELS[int(rng.integers(2))])


@dataclass(frozen=True)
class YesNoVerdict(JudgeForm):
    """Base class of verdicts: the score `judge` is 1 where a judge finds y more likely than n, else 0.

    Args:
        name: of the score.
    """

    reads_options = True

    name: str = "judge"

    @abstractmethod
    def write_question(self, episode: Episode) -> str:
        """Write the question about an episode's answer as the judge's task writes it."""

    def ask(self, group: Sequence[Episode]) -> list[Question]:
        return [Question(self.write_question(episode), _read_odds, options=LABELS) for episode in group]

    def combine(self, group: Sequence[Episode], verdicts: Sequence[Any]) -> list[dict[str, float] | NoAnswer]:
        return [each if isinstance(each, NoAnswer) else {self.name: float(each > 0)} for each in verdicts]


def _read_odds(reply: Reply) -> float:
    """Log-odds of y against n."""
    return reply.options["y"] - reply.options["n"]
