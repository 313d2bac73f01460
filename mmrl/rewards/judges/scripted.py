"""A judge that is a function."""

from __future__ import annotations

from collections.abc import Sequence

from mmrl.core.function_path import load_functions
from mmrl.rewards.judges.base import LanguageJudge, NoAnswer
from mmrl.rewards.judges.questions import Question, Reply


class ScriptedJudge(LanguageJudge):
    """Judge that is a function of the question's text, which returns the text of the reply; for tests and rules.

    Where the question has options, the function returns their log-probs by name.

    Args:
        function: path, as judge.py:answer or package.module:answer.
    """

    def __init__(self, function: str):
        super().__init__()
        self.function = function
        self._call = load_functions([function], "reward.judge.function")[0]

    def reply(self, questions: Sequence[Question]) -> list[Reply | NoAnswer]:
        return [self._reply(question) for question in questions]

    def _reply(self, question: Question) -> Reply | NoAnswer:
        try:
            answer = self._call(question.text)
        except Exception as error:
            return NoAnswer(f"reward.judge.function={self.function} raised {type(error).__name__}: {error}")
        return Reply("", options=dict(answer)) if question.options else Reply(str(answer))
