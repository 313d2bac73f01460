"""RewardAnything: reward of a judge's grades by a reference ranking, on which several judges agree.

RewardAnything: Generalizable Principle-Following Reward Models, 2025, section 3, arXiv:2506.03637.

- the reference: mean grades of the judges that give the same ranking, if there are enough of them: `find_consensus`
- the penalty of reversed pairs, which grows with the reference gap: `reversed_gaps`
- both in a run: `ConsensusReward`
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from typing import Any

from mmrl.core.errors import ConfigError
from mmrl.core.groups import group_episodes
from mmrl.core.types import Context, Episode, Task
from mmrl.rewards.base import Reward
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.judges.base import LanguageJudge, NoAnswer, read_verdict
from mmrl.rewards.judges.graded import AnswerGrader, SheetGrader
from mmrl.rewards.judges.questions import Question, Reply, answer_of
from mmrl.rewards.judges.reward import note_counts
from mmrl.rewards.measures import kendall_tau

NAMES = ("consensus_tau", "consensus_match", "reversed_gaps")
"""Scores of a reply by the reference."""


def rank_grades(grades: Sequence[float]) -> tuple[int, ...]:
    """Rank of each answer, 0 for the best; equal grades share a rank: 5, 3, 3, 1 have the ranks 0, 1, 1, 2."""
    levels = sorted(set(grades), reverse=True)
    return tuple(levels.index(grade) for grade in grades)


def find_consensus(verdicts: Sequence[Sequence[float]], agreeing: int) -> list[float] | None:
    """Mean grades of the judges with the most frequent ranking; None where fewer than `agreeing` judges give it.

    A mean of grades with one ranking has that ranking. Source: RewardAnything, 2025, section 3, arXiv:2506.03637: four
    judges, of which at least three agree.

    Args:
        verdicts: readable grades, a list for each judge.
        agreeing: judges that must give the same ranking.
    """
    rankings = [rank_grades(grades) for grades in verdicts]
    ranking, count = Counter(rankings).most_common(1)[0] if rankings else ((), 0)
    if count < agreeing:
        return None
    same = [grades for grades, each in zip(verdicts, rankings) if each == ranking]
    return [sum(column) / count for column in zip(*same)]


def reversed_gaps(grades: Sequence[float], reference: Sequence[float]) -> float:
    """Penalty of reversed pairs: the sum of |r_i - r_j| over pairs in the opposite order, divided by that of all pairs.

    In [0, 1]; a pair with equal grades is not reversed. 0 where all reference grades r are equal.
    Source: RewardAnything, 2025, section 3, arXiv:2506.03637: a penalty that grows with the gap; its scale is ours.
    """
    pairs = [(i, j) for i in range(len(reference)) for j in range(i)]
    gaps = {(i, j): reference[i] - reference[j] for i, j in pairs}
    total = sum(map(abs, gaps.values()))
    wrong = sum(abs(gaps[i, j]) for i, j in pairs if (grades[i] - grades[j]) * gaps[i, j] < 0)
    return wrong / total if total else 0.0


class ConsensusReward(Reward):
    """Reward of grades of a list of answers: sum_k weights_k * scores_k, by the reference on which judges agree.

    The judges grade the answers of each prompt once. Scores that it adds: `consensus_tau`, Kendall's tau with the
    reference; `consensus_match`, 1 - mean distance of the grades / (high - low); `reversed_gaps`, the penalty. They are
    0 for a reply that cannot be read, and for all replies to a prompt without consensus, so that nothing is learned
    from it (`DropZeroVariance`). `agreed` is 1 where there is a reference. `rollout/consensus_*` count prompts,
    agreements and replies of judges that cannot be read.

    Args:
        judges: by name; frozen models of the run or servers.
        weights: by name of the score.
        grader: asks for the grades of a prompt's answers, and reads them, of the judges and of the policy; by default
            from 1 to 5, with the ranking.
        agreeing: judges that must give the same ranking.
        answers: entry of `Prompt.info` with the list of answers.
    """

    def __init__(
        self,
        judges: dict[str, LanguageJudge],
        weights: dict[str, float],
        grader: AnswerGrader | None = None,
        agreeing: int = 3,
        answers: str = "answers",
    ):
        if not 1 <= agreeing <= len(judges):
            raise ConfigError(
                f"reward.agreeing must be from 1 to the number of reward.judges, {len(judges)}; got {agreeing}"
            )
        self.judges, self.weights = judges, weights
        self.grader = grader or SheetGrader(low=1, high=5, ranked=True)
        self.agreeing, self.answers = agreeing, answers

    @property
    def foreign(self) -> bool:  # type: ignore[override]
        return not all(judge.of_run for judge in self.judges.values())

    def sampled_models(self) -> frozenset[str]:
        return frozenset().union(*(judge.sampled_models() for judge in self.judges.values()))

    def bind(self, ctx: Context) -> ConsensusReward:
        bound = copy.copy(self)
        bound.judges = {name: judge.bind(ctx) for name, judge in self.judges.items()}
        return bound

    def check_task(self, task: Task) -> None:
        """Refuse a task whose prompts have no list of answers."""
        value = task[0].info.get(self.answers)
        if not isinstance(value, list | tuple) or not all(isinstance(answer, str) for answer in value):
            raise ConfigError(
                f"reward reads the answers to grade from Prompt.info[{self.answers!r}], and task {task.name!r} has "
                f"{value!r} there; take task=judgements, or set reward.answers"
            )

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        groups = group_episodes(episodes)
        questions = {key: self._ask(group[0]) for key, group in groups.items()}
        verdicts = [judge.judge(list(questions.values())) for judge in self.judges.values()]
        references = {}
        for key, each in zip(questions, zip(*verdicts)):
            references[key] = find_consensus([v for v in each if not isinstance(v, NoAnswer)], self.agreeing)
        agreed = sum(reference is not None for reference in references.values())
        failures = sum(isinstance(v, NoAnswer) for of_judge in verdicts for v in of_judge)
        note_counts(
            episodes, "consensus", Counter({"prompts": len(groups), "agreements": agreed, "unreadable": failures})
        )
        return [self._score(e, questions[e.group], references[e.group]) for e in episodes]

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        return WeightedSum(self.weights)(group)

    def _ask(self, episode: Episode) -> Question:
        return self.grader.ask(episode, list(episode.prompt.info[self.answers]))

    def _score(self, episode: Episode, question: Question, reference: Sequence[float] | None) -> dict[str, float]:
        """Scores of a policy's reply."""
        agreed = {"agreed": float(reference is not None)}
        grades: Any = None if reference is None else read_verdict(question, Reply(answer_of(episode)))
        if reference is None or isinstance(grades, NoAnswer):
            return {**dict.fromkeys(NAMES, 0.0), **agreed}
        distance = sum(abs(one - other) for one, other in zip(grades, reference)) / len(reference)
        match = 1 - distance / (self.grader.high - self.grader.low)
        values = (kendall_tau(grades, reference), match, reversed_gaps(grades, reference))
        return {**dict(zip(NAMES, values)), **agreed}
