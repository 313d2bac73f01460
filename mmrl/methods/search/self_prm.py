"""Self-PRM: the model that solves a problem judges its own solutions, and those that it accepts vote.

Is PRM Necessary? Problem-Solving RL Implicitly Induces PRM Capability in Large Language Models, 2025, arXiv:2505.11227.

- accept or reject: the policy's own first word after its solution: `SelfVerdict`
- the answer is the majority among accepted solutions, or among all where none is:
  `mmrl.evaluation.metrics.vote.FilteredVote`, which also has precision and recall of the verdicts
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mmrl.core.types import Episode
from mmrl.rewards.judges.base import JudgeForm, NoAnswer
from mmrl.rewards.judges.questions import Question, Reply, answer_of, question_of

ACCEPTED = "accepted"
"""Name of the score: 1 for a solution that the judge accepts, else 0."""


@dataclass(frozen=True)
class SelfVerdict(JudgeForm):
    """Score `accepted` of a solution: 1 if p(right) / (p(right) + p(wrong)) of the judge's first word is high enough.

    The judge reads the problem, the solution and a mark, as the policy read them in training; nothing marks what was
    written by others, so this form is for a judge that is the policy itself.

    Args:
        template: of the question, with {problem} and {solution}.
        right: the word of a right solution, one token.
        wrong: the word of a wrong solution.
        least: smallest share of an accepted solution, in (0, 1).
    """

    reads_options = True

    template: str = "{problem}{solution}?"
    right: str = "y"
    wrong: str = "n"
    least: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.least < 1:
            raise ValueError(f"reward.form.least must be in (0, 1), got {self.least}")
        missing = [name for name in ("{problem}", "{solution}") if name not in self.template]
        if missing:
            raise ValueError(f"reward.form.template lacks {' and '.join(missing)}: {self.template!r}")
        if self.right == self.wrong:
            raise ValueError(f"reward.form.right and reward.form.wrong must differ, both are {self.right!r}")

    def ask(self, group: Sequence[Episode]) -> list[Question]:
        return [self._ask(episode) for episode in group]

    def _ask(self, episode: Episode) -> Question:
        text = self.template.replace("{problem}", question_of(episode)).replace("{solution}", answer_of(episode))
        return Question(text, self._read, options=(self.right, self.wrong))

    def _read(self, reply: Reply) -> float:
        odds = reply.options[self.right] - reply.options[self.wrong]  # nats
        return float(odds >= math.log(self.least) - math.log1p(-self.least))

    def combine(self, group: Sequence[Episode], verdicts: Sequence[Any]) -> list[dict[str, float] | NoAnswer]:
        return [verdict if isinstance(verdict, NoAnswer) else {ACCEPTED: verdict} for verdict in verdicts]
