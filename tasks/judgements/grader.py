"""Questions of the task to a judge, about the answers of a policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmrl.core.types import Episode
from mmrl.rewards.judges.graded import AnswerGrader
from mmrl.rewards.judges.questions import Question, Reply, Unreadable
from tasks.checks import final_line
from tasks.judgements.principles import HIGH, LOW, PRINCIPLE, read_reply, write_question


@dataclass(frozen=True)
class PrincipleGrader(AnswerGrader):
    """Asks a judge of sentences for grades by a principle: +b badi kabe?

    Args:
        principle: as +b or +b-n.
        ranked: the judge writes the ranking too.
    """

    principle: str
    ranked: bool = False

    low = LOW
    high = HIGH

    def __post_init__(self) -> None:
        if not PRINCIPLE.fullmatch(self.principle):
            raise ValueError(f"principle_grader.principle must be + or - and a letter, as +b-n; got {self.principle!r}")

    def ask(self, episode: Episode, answers: Sequence[str]) -> Question:
        text = write_question(self.principle, [final_line(answer) for answer in answers])
        return Question(text, lambda reply: self._read(reply, len(answers)))

    def _read(self, reply: Reply, count: int) -> list[float]:
        grades = read_reply(reply.text.strip(), count, self.ranked)
        if grades is None:
            raise Unreadable(f"it is not {count} grades from {LOW} to {HIGH}{' and their ranking' * self.ranked}")
        return [float(each) for each in grades]
