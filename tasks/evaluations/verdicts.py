"""Ask a trained evaluator about solutions, and read its verdict: the reward of a policy that solves sums."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mmrl.core.types import Episode
from mmrl.rewards.judges.base import JudgeForm, NoAnswer
from mmrl.rewards.judges.questions import Question, Reply, Unreadable, answer_of
from tasks.evaluations.solutions import MARKS, MAX_LENGTH, WRONG_TYPE

_OTHER = re.compile(rf"[^0-9{WRONG_TYPE}{re.escape(MARKS)}]")


@dataclass(frozen=True)
class EvaluatorVerdict(JudgeForm):
    """Score `accepted` of a solution: 1 if the evaluator, asked v347:74?, writes its reasons and y, 0 for n.

    What is judged cannot hold the marks of a question: other characters count as steps of a wrong type, and what is
    longer than any solution is cut. Source: Foundational Automatic Evaluators, 2025, arXiv:2510.17793, the evaluator as
    the verifier of RL.

    Args:
        direct: ask for the verdict alone, without reasons.
    """

    direct: bool = False

    def ask(self, group: Sequence[Episode]) -> list[Question]:
        return [Question(self.write(e.prompt.info["operands"], answer_of(e)), self._read) for e in group]

    def write(self, operands: str, answer: str) -> str:
        """Write the question about an answer."""
        solution = _OTHER.sub(WRONG_TYPE, answer.strip())[: MAX_LENGTH + 1]
        return f"v{operands}:{solution}{'!' if self.direct else '?'}"

    def _read(self, reply: Reply) -> float:
        match = re.fullmatch("([yn])" if self.direct else "[0-9]{1,4}>([yn])", reply.text.strip())
        if match is None:
            raise Unreadable("it has no verdict y or n")
        return float(match[1] == "y")

    def combine(self, group: Sequence[Episode], verdicts: Sequence[Any]) -> list[dict[str, float] | NoAnswer]:
        return [verdict if isinstance(verdict, NoAnswer) else {"accepted": verdict} for verdict in verdicts]
