"""RLPT: 1 where a judge says that the predicted segment is a valid prefix of the text that follows.

Reinforcement Learning on Pre-Training Data, 2025, arXiv:2509.19249, section 3.

- prompts that ask for the next segment (ASR) and for a middle one (MSR), mixed by the task
- r = 1 if the prediction is a prefix of the following segments by its meaning: `PrefixVerdict`
- a prediction that is empty earns 0 without a judge, since it is a prefix of everything
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mmrl.core.types import Episode
from mmrl.rewards.judges.base import JudgeForm, NoAnswer
from mmrl.rewards.judges.questions import Question, Reply, Sheet, answer_of, read_number

INSTRUCTION = (
    "The text goes on with the segments in `following`. Is the prediction a valid beginning of them? Its meaning has "
    "to be that of their first part, in any words; it may end early, and must not add anything or go beyond them."
)


@dataclass(frozen=True)
class PrefixVerdict(JudgeForm):
    """Score `judge` of an answer: 1 if a judge finds it a valid prefix of the segments that follow, 0 if not.

    An empty answer is not asked about and has 0. Source: RLPT, 2025, section 3, arXiv:2509.19249.

    Args:
        form: what a judge of another kind is asked, with scores of 0 and 1; None for the question of this class.
        instruction: of the question.
        following: key of `Prompt.info` whose value lists the segments that follow.
        name: of the score.
    """

    form: JudgeForm | None = None
    instruction: str = INSTRUCTION
    following: str = "following"
    name: str = "judge"

    def ask(self, group: Sequence[Episode]) -> list[Question]:
        asked = [episode for episode in group if answer_of(episode).strip()]
        return [self._ask(episode) for episode in asked] if self.form is None else self.form.ask(asked)

    def _ask(self, episode: Episode) -> Question:
        if self.following not in episode.prompt.info:
            raise ValueError(
                f"reward.form reads the segments that follow, and {episode.prompt.key!r} has no info "
                f"{self.following!r} but {sorted(episode.prompt.info)}; set reward.form.following"
            )
        texts = {"following": "\n".join(episode.prompt.info[self.following]), "prediction": answer_of(episode)}
        sheet = Sheet(texts)
        text = sheet.format(self.instruction, "End with this line:\nprefix-MARK: 1 for yes, or 0 for no.")
        return Question(text, lambda reply: _read(sheet, reply))

    def combine(self, group: Sequence[Episode], verdicts: Sequence[Any]) -> list[dict[str, float] | NoAnswer]:
        asked = [episode for episode in group if answer_of(episode).strip()]
        if self.form is None:
            results = [each if isinstance(each, NoAnswer) else {self.name: each} for each in verdicts]
        else:
            results = self.form.combine(asked, verdicts)
        rest = iter(results)
        return [next(rest) if answer_of(episode).strip() else {self.name: 0.0} for episode in group]


def _read(sheet: Sheet, reply: Reply) -> float:
    return float(read_number(sheet.read(reply), "prefix", 0, 1) >= 0.5)
