"""MultiCritique: critiques merged from several critics, and preferences of critiques by the revisions under them.

Training Language Models to Critique With Multi-agent Feedback, 2024, arXiv:2410.15287.

- several critics criticise one answer; the meta-critique merges them and keeps the correct units: `merge_units`,
  `MetaCritique`
- the worth of a critique is the mean score of the revisions that m revisers write under it: `RevisionGradeReward`
- two critiques of one answer are a pair where |mean score under c1 - mean score under c2| is large: the filter `pairs`
  of `conf/rounds/multi_critique.yaml`; a Bradley-Terry model of the pairs is the reward of PPO
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mmrl.commands.rounds.rows import group_rows, read_rows
from mmrl.core.errors import ConfigError
from mmrl.core.text_environment import TextEnvironment
from mmrl.core.types import Context, Episode, Prompt
from mmrl.rewards.base import Reward
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.critiques import CritiqueForm, Unit
from mmrl.rewards.judges.base import LanguageJudge, NoAnswer
from mmrl.rewards.judges.questions import Question, answer_of
from mmrl.rewards.judges.reward import drop_unanswered
from mmrl.rollouts.text.scripted import Scripted

REVISION, FIXED = "revision", "fixed"
"""Names of the scores: the mean grade of the revisions under a critique, and the share of them that are right."""
FULL = 10.0
"""Grade of a right revision."""


def merge_units(critiques: Sequence[Sequence[Unit]], is_right: Callable[[Unit], bool]) -> list[Unit]:
    """Merge the units of several critiques: of each quoted part the first unit that is correct, in order of the quotes.

    Source: MultiCritique, 2024, meta-critique, arXiv:2410.15287.
    """
    merged: dict[str, Unit] = {}
    for unit in (unit for units in critiques for unit in units):
        if unit.quote not in merged and is_right(unit):
            merged[unit.quote] = unit
    return [merged[quote] for quote in sorted(merged)]


class MetaCritique(Scripted):
    """Every answer is the critique that is merged from those of several critics of the same answer.

    A critique that cannot be read adds nothing. Source: MultiCritique, 2024, arXiv:2410.15287.

    Args:
        critics: files of `mmrl rounds` with the critiques of each critic, rows.jsonl of its sample stage.
        form: the language of the critiques, which says what unit is correct.
    """

    def __init__(self, critics: list[str], form: CritiqueForm):
        if not critics:
            raise ConfigError("rollout.critics names no file; give the rows.jsonl of each critic's sample stage")
        self.critics, self.form = list(critics), form

    @cached_property
    def _by_key(self) -> list[Mapping[str, Sequence[Mapping[str, Any]]]]:
        """Of each critic, its rows by the key of the problem."""
        if absent := [each for each in self.critics if not Path(each).is_file()]:
            raise ConfigError(f"rollout.critics: {absent[0]}: no such file; give the rows.jsonl of a sample stage")
        return [group_rows(read_rows(Path(each))) for each in self.critics]

    def answer(self, prompt: Prompt, ctx: Context, rng: np.random.Generator) -> str:
        critiques = []
        for path, rows in zip(self.critics, self._by_key):
            if prompt.key not in rows:
                raise ConfigError(
                    f"rollout.critics: {path} has no critique for {prompt.key!r}; give this stage the offset and the "
                    "count of the critics' stages"
                )
            critiques += [self.form.read(row["completion"], prompt) or [] for row in rows[prompt.key]]
        return self.form.write(merge_units(critiques, lambda unit: self.form.is_right(unit, prompt)), prompt)

    def act(self, environment: TextEnvironment, rng: np.random.Generator) -> str:
        raise ConfigError("rollout: critiques are answers to problems, and no actions of a text environment")


class RevisionGradeReward(Reward):
    """Reward of a critique: sum_k weights_k * scores_k, with the mean grade of the revisions under it, `revision`.

    Every reviser reads the answer and the critique, and writes a revision, which the form grades from 0 to 10. `fixed`
    is the share of right revisions. A critique that cannot be read reaches the revisers as it is. Where a reviser does
    not answer, the episode is an error. Source: MultiCritique, 2024, arXiv:2410.15287.

    Args:
        revisers: the agents that revise, by name: models of this process, behind servers, or of the run.
        form: how they are asked, and how a revision is graded.
        weights: by name of the score.
        max_failed: share of the episodes that may be without a revision; with more the run ends.
    """

    def __init__(
        self,
        revisers: dict[str, LanguageJudge],
        form: CritiqueForm,
        weights: dict[str, float] | None = None,
        max_failed: float = 0.5,
    ):
        if not revisers:
            raise ConfigError("reward.revisers names no reviser; add one, as in reward.revisers.first={_target_: ...}")
        self.revisers, self.form = dict(revisers), form
        self.weights, self.max_failed = weights or {REVISION: 1.0}, max_failed

    @property
    def foreign(self) -> bool:  # type: ignore[override]
        return not any(reviser.of_run for reviser in self.revisers.values())

    def sampled_models(self) -> frozenset[str]:
        return frozenset().union(*(reviser.sampled_models() for reviser in self.revisers.values()))

    def bind(self, ctx: Context) -> RevisionGradeReward:
        bound = {name: reviser.bind(ctx) for name, reviser in self.revisers.items()}
        return RevisionGradeReward(bound, self.form, self.weights, self.max_failed)

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        questions = [self._ask(episode) for episode in episodes]
        by_reviser = [reviser.judge(questions) for reviser in self.revisers.values()]
        results = [self._combine(grades) for grades in zip(*by_reviser, strict=True)]
        drop_unanswered(episodes, results, self.max_failed, "revision of every reviser")
        return [{} if isinstance(result, NoAnswer) else result for result in results]

    def _ask(self, episode: Episode) -> Question:
        """The revision of an answer under a critique, whose verdict is its grade."""
        prompt = episode.prompt
        text = self.form.write_revision(prompt, answer_of(episode))
        return Question(text, lambda reply: self.form.grade(reply.text, prompt))

    def _combine(self, grades: Sequence[float | NoAnswer]) -> dict[str, float] | NoAnswer:
        failure = next((grade for grade in grades if isinstance(grade, NoAnswer)), None)
        if failure is not None:
            return failure
        values = [float(grade) for grade in grades if not isinstance(grade, NoAnswer)]
        return {REVISION: sum(values) / len(values), FIXED: sum(value == FULL for value in values) / len(values)}

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        return WeightedSum(self.weights)(group)
