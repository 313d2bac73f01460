"""Rubrics: criteria with weights, saturation and vetoes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mmrl.core.types import Episode
from mmrl.rewards.judges.base import JudgeForm, NoAnswer
from mmrl.rewards.judges.pointwise import sheet_of
from mmrl.rewards.judges.questions import Question, Reply, Sheet, read_number


@dataclass(frozen=True)
class Criterion:
    """One criterion of a rubric.

    Args:
        text: what an answer must do to have the full grade.
        weight: in the weighted mean.
        saturation: grade, of [0, 1], from which on more is not better: grades are divided by it and cut at 1.
        veto: grade below which the answer has the rubric's `vetoed` score whatever the others say; None for no veto.
    """

    text: str
    weight: float = 1.0
    saturation: float = 1.0
    veto: float | None = None

    def __post_init__(self) -> None:
        if not (self.weight > 0 and 0 < self.saturation <= 1 and (self.veto is None or 0 < self.veto <= 1)):
            raise ValueError(
                f"a criterion has a weight > 0, and saturation and veto in (0, 1]; got {self.weight}, "
                f"{self.saturation} and {self.veto} for {self.text!r}"
            )


@dataclass(frozen=True)
class Rubric(JudgeForm):
    """Score `judge` of an answer: the weighted mean of the grades of criteria, each in [0, 1].

    Each criterion of the configuration has a score of its own, `judge_NAME`. A failed veto replaces the mean.

    Args:
        criteria: by name, a text or a criterion with its weight, saturation and veto.
        column: column of the row with further criteria of its own, {name: text}; None for none.
        grades: the best grade of a criterion; the judge writes whole numbers from 0.
        vetoed: score after a veto.
        reference: show the judge the right answer.
        name: of the score.
    """

    criteria: dict[str, Criterion] = field(default_factory=dict)
    column: str | None = None
    grades: int = 4
    vetoed: float = 0.0
    reference: bool = False
    name: str = "judge"

    def __post_init__(self) -> None:
        if not self.criteria and self.column is None:
            raise ValueError("reward.form has no criteria; name them in reward.form.criteria, or a reward.form.column")
        if self.grades < 1:
            raise ValueError(f"reward.form.grades must be at least 1, got {self.grades}")
        _check_names(self.criteria, "reward.form.criteria")

    def ask(self, group: Sequence[Episode]) -> list[Question]:
        return [self._ask(episode) for episode in group]

    def criteria_of(self, episode: Episode) -> dict[str, Criterion]:
        """The criteria of the configuration and those of the row.

        Raises:
            ValueError: the row has no such column, or it is no {name: text}.
        """
        if self.column is None:
            return self.criteria
        value, place = episode.prompt.info.get(self.column), episode.prompt.place or episode.prompt.key
        if not isinstance(value, Mapping) or not value or not all(isinstance(text, str) for text in value.values()):
            raise ValueError(f"column {self.column!r} of {place} must be criteria as {{name: text}}, got {value!r}")
        _check_names(value, f"column {self.column!r} of {place}")
        if twice := sorted(value.keys() & self.criteria.keys()):
            raise ValueError(f"criterion {twice[0]!r} is in reward.form.criteria and in {place}; rename one")
        return {**self.criteria, **{name: Criterion(text) for name, text in value.items()}}

    def _ask(self, episode: Episode) -> Question:
        criteria, sheet = self.criteria_of(episode), sheet_of(episode, self.reference)
        listing = "\n".join(f"{name}: {criterion.text}" for name, criterion in criteria.items())
        lines = "\n".join(f"{name}-MARK: N" for name in criteria)
        verdict = (
            f"End with one line for each criterion:\n{lines}\nwhere N is a whole number from 0 (not met) to "
            f"{self.grades} (met)."
        )
        text = sheet.format(f"Grade the answer to the question by each of these criteria:\n{listing}", verdict)
        return Question(text, lambda reply: self._read(sheet, criteria, reply), tuple(episode.prompt.images))

    def _read(self, sheet: Sheet, criteria: Mapping[str, Criterion], reply: Reply) -> dict[str, float]:
        """The score and the grades of the configuration's criteria."""
        values = sheet.read(reply)
        grades = {name: read_number(values, name, 0, self.grades) / self.grades for name in criteria}
        weight = sum(criterion.weight for criterion in criteria.values())
        mean = sum(
            criterion.weight * min(grades[name] / criterion.saturation, 1.0) for name, criterion in criteria.items()
        )
        vetoes = [c for name, c in criteria.items() if c.veto is not None and grades[name] < c.veto]
        score = self.vetoed if vetoes else mean / weight
        return {self.name: score, **{f"{self.name}_{name}": grades[name] for name in self.criteria}}

    def combine(self, group: Sequence[Episode], verdicts: Sequence[Any]) -> list[dict[str, float] | NoAnswer]:
        return list(verdicts)


def _check_names(names: Mapping[str, Any], place: str) -> None:
    if wrong := [name for name in names if not re.fullmatch(r"[A-Za-z_]\w*", name)]:
        raise ValueError(f"{place}: the name {wrong[0]!r} must be one word of letters, digits and _")
