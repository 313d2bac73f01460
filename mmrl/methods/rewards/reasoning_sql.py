"""Reasoning-SQL: execution, a judge, syntax, schema and n-grams of a query in one reward.

Reasoning-SQL: Reinforcement Learning with SQL Tailored Partial Rewards for Reasoning-Enhanced Text-to-SQL, 2025,
arXiv:2503.23157, section 3.

- R = 3 R_execution + 2 R_judge + R_syntax + R_schema + R_ngram + R_format, the weights of `conf/method`
- the judge grades a query beside the right one where the results differ: `WrongAnswers`
- the other terms are the scores of `tasks.sql`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mmrl.core.errors import ConfigError
from mmrl.core.types import Episode
from mmrl.rewards.judges.base import JudgeForm, NoAnswer
from mmrl.rewards.judges.pointwise import Pointwise
from mmrl.rewards.judges.questions import Question

INSTRUCTION = (
    "The question asks for an SQL query, and the reference is a right one. The answer returned other rows. Grade how "
    "much of it is right: tables and columns, conditions, aggregates, grouping and order."
)


def _pointwise() -> JudgeForm:
    return Pointwise(INSTRUCTION, reference=True)


@dataclass(frozen=True)
class WrongAnswers(JudgeForm):
    """Ask a judge about the answers whose score `exact` is below 1; a right answer has the best grade unasked.

    So no wrong answer earns more than a right one by its judge. Source: Reasoning-SQL, 2025, section 3,
    arXiv:2503.23157.

    Args:
        form: what the judge is asked about a wrong answer; its scores are in [0, 1].
        name: of the form's score.
    """

    form: JudgeForm = field(default_factory=_pointwise)
    name: str = "judge"

    def __post_init__(self) -> None:
        if self.form.reads_options:
            raise ConfigError("reward.form.form reads log-probs of a word; take a form with written grades")

    def ask(self, group: Sequence[Episode]) -> list[Question]:
        return self.form.ask(_select_wrong(group))

    def combine(self, group: Sequence[Episode], verdicts: Sequence[Any]) -> list[dict[str, float] | NoAnswer]:
        graded = iter(self.form.combine(_select_wrong(group), verdicts))
        return [{self.name: 1.0} if _is_right(episode) else next(graded) for episode in group]


def _select_wrong(group: Sequence[Episode]) -> list[Episode]:
    return [episode for episode in group if not _is_right(episode)]


def _is_right(episode: Episode) -> bool:
    if "exact" not in episode.scores:
        raise ConfigError(
            f"reward.form asks about wrong answers alone, and {episode.prompt.key!r} has no score 'exact' but "
            f"{sorted(episode.scores)}; take a task with exact answers, or the inner form as reward.form"
        )
    return episode.scores["exact"] >= 1
