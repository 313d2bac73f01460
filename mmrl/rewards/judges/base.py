"""Who answers (`LanguageJudge`) and what is asked (`JudgeForm`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Any

from mmrl.core.types import Context, Episode
from mmrl.rewards.judges.client import NoAnswer as NoAnswer
from mmrl.rewards.judges.questions import Question, Reply, Unreadable


class LanguageJudge(ABC):
    """Base class of judges: replies to questions. One that fails to answer a question returns a `NoAnswer` for it.

    Attributes:
        counts: numbers of the last call, by name: requests, failures, tokens, seconds.
        sees_images: whether it reads the pictures of a question.
        of_run: whether it is a model of the run, which cannot be asked before there is one.
    """

    sees_images = False
    of_run = False

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def sampled_models(self) -> frozenset[str]:
        """Return the names of the frozen models of the run that it asks."""
        return frozenset()

    def bind(self, ctx: Context) -> LanguageJudge:
        """Return the judge of a context; see `mmrl.rewards.base.Reward.bind`."""
        return self

    @abstractmethod
    def reply(self, questions: Sequence[Question]) -> list[Reply | NoAnswer]:
        """Reply to each question, in order."""

    def judge(self, questions: Sequence[Question]) -> list[Any]:
        """Return the verdict on each question, or its NoAnswer."""
        self.counts = Counter()
        replies = self.reply(questions)
        self.counts["requests"] += len(questions)
        verdicts = [read_verdict(question, reply) for question, reply in zip(questions, replies, strict=True)]
        self.counts["failures"] += sum(isinstance(verdict, NoAnswer) for verdict in verdicts)
        for reply in replies:
            if isinstance(reply, Reply):
                self.counts["prompt_tokens"] += reply.prompt_tokens
                self.counts["completion_tokens"] += reply.completion_tokens
        return verdicts


class JudgeForm(ABC):
    """Base class of what a judge is asked about a group of episodes, and what its verdicts say about each.

    Attributes:
        reads_options: whether its verdicts are log-probs of a first word.
    """

    reads_options = False

    @abstractmethod
    def ask(self, group: Sequence[Episode]) -> list[Question]:
        """The questions about a group."""

    @abstractmethod
    def combine(self, group: Sequence[Episode], verdicts: Sequence[Any]) -> list[dict[str, float] | NoAnswer]:
        """The named scores of each episode, given the verdicts on the questions, or why it has none."""

    def count(self, verdicts: Sequence[Any]) -> dict[str, int]:
        """Further numbers about the verdicts on a group, which are summed over the iteration."""
        return {}


def read_verdict(question: Question, reply: Reply | NoAnswer) -> Any:
    """Read the verdict of a reply; a reply that cannot be read is a NoAnswer with its beginning."""
    if isinstance(reply, NoAnswer):
        return reply
    try:
        return question.read(reply)
    except Unreadable as error:
        return NoAnswer(f"the judge's reply cannot be read: {error}; it was {reply.text[:200]!r}")
