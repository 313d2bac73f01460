"""Questions of the task to a judge, about the answers of a policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mmrl.core.errors import ConfigError
from mmrl.core.types import Episode
from mmrl.rewards.judges.base import JudgeForm, NoAnswer
from mmrl.rewards.judges.graded import AnswerGrader
from mmrl.rewards.judges.questions import Question, Reply, Unreadable, answer_of
from tasks.checks import final_line
from tasks.judgements.principles import HIGH, LOW, PRINCIPLE, WORDS, read_reply, split_reasons, write_question


@dataclass(frozen=True)
class PrincipleGrader(AnswerGrader):
    """Asks a judge of sentences for grades by a principle: +b badi kabe?

    Args:
        principle: as +b or +b-n; None for that of the prompt, `Prompt.info["principle"]`.
        ranked: the judge writes the ranking too.
        reasons: the judge writes the counts of each answer before the grades.
    """

    principle: str | None = None
    ranked: bool = False
    reasons: bool = False

    low = LOW
    high = HIGH

    def __post_init__(self) -> None:
        if self.principle is not None and not PRINCIPLE.fullmatch(self.principle):
            raise ValueError(f"principle_grader.principle must be + or - and a letter, as +b-n; got {self.principle!r}")

    def ask(self, episode: Episode, answers: Sequence[str]) -> Question:
        principle = self.principle or episode.prompt.info.get("principle")
        if principle is None:
            raise ConfigError(
                f"principle_grader.principle is not set, and {episode.prompt.key!r} has none in Prompt.info; set it, "
                "as in principle=+b"
            )
        text = write_question(principle, [final_line(answer) for answer in answers])
        return Question(text, lambda reply: self._read(reply, len(answers), len(principle) // 2))

    def _read(self, reply: Reply, count: int, parts: int) -> list[float]:
        text = reply.text.strip()
        if self.reasons:
            pieces = split_reasons(text, count, parts)
            if pieces is None:
                raise Unreadable(f"it does not begin with the counts of {count} answers")
            text = pieces[1]
        grades = read_reply(text, count, self.ranked)
        if grades is None:
            raise Unreadable(f"it is not {count} grades from {LOW} to {HIGH}{' and their ranking' * self.ranked}")
        return [float(each) for each in grades]


@dataclass(frozen=True)
class PrincipleVerdict(JudgeForm):
    """Score `judge` of an answer: log p(yes) - log p(no) that it satisfies the principle of its prompt.

    Prompts have the principles in turn, and the policy does not see them.

    Args:
        principles: as +b or +b-n.
        name: of the score.
        words: write the principle in words, "many b baba?", for a judge that learned from written feedback.
    """

    reads_options = True

    principles: Sequence[str] = ("+b",)
    name: str = "judge"
    words: bool = False

    def __post_init__(self) -> None:
        if not self.principles or not all(PRINCIPLE.fullmatch(each) for each in self.principles):
            raise ConfigError(
                f"reward.form.principles must be + or - and a letter each, as +b-n; got {list(self.principles)}"
            )
        if self.words and (unknown := [each for each in self.principles if each not in WORDS]):
            raise ConfigError(
                f"reward.form.principles has {unknown[0]!r}, which has no words; those with words are {list(WORDS)}"
            )

    def ask(self, group: Sequence[Episode]) -> list[Question]:
        return [self._ask(episode) for episode in group]

    def _ask(self, episode: Episode) -> Question:
        principle = self.principles[episode.prompt.index % len(self.principles)]
        principle = WORDS[principle] if self.words else principle
        text = write_question(principle, [final_line(answer_of(episode))])
        return Question(text, lambda reply: reply.options["y"] - reply.options["n"], options=("y", "n"))

    def combine(self, group: Sequence[Episode], verdicts: Sequence[Any]) -> list[dict[str, float] | NoAnswer]:
        return [verdict if isinstance(verdict, NoAnswer) else {self.name: verdict} for verdict in verdicts]
