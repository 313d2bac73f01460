"""RLKF: preferences that follow what the policy knows, and the reliability of its answers.

Rejection Improves RefusalReliability: Training LLMs to Refuse Unknown Questions Using RL from Knowledge Feedback, 2024,
arXiv:2403.18349.

- a problem is known where enough of the policy's own answers are right: `KnowledgePreference`
- known: right > refused, right > wrong; unknown: refused > wrong, right > refused: `grade`, with a refusal of every
  problem: `Refusals`
- Rely = Ans * Truth + (1 - Ans) * Acc, of the shares of right, wrong and refused answers: `RefusalReliability`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import ConfigError, check_fraction
from mmrl.core.groups import group_episodes
from mmrl.core.text_environment import TextEnvironment
from mmrl.core.types import Context, Episode, Prompt
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.metrics.finished_episodes import count_errors, drop_errors, get_binary_score
from mmrl.rewards.base import Reward
from mmrl.rollouts.text.scripted import Scripted

REFUSED, KNOWN = "refused", "known"
"""Names of the scores: whether an answer is the refusal, and whether the policy knows the problem."""


def grade(right: bool, refused: bool, known: bool) -> float:
    """Grade of an answer: 1 if it is right, and 0.5 for the refusal of an unknown problem, else 0.

    Answers of one grade are not compared. Source: RLKF, 2024, arXiv:2403.18349.
    """
    return 1.0 if right else 0.5 * (refused and not known)


@dataclass(frozen=True)
class KnowledgePreference(Reward):
    """Reward of an answer: its `grade` in its group, all answers to one problem, with the scores `refused`, `known`.

    Args:
        refusal: the text that refuses.
        least: share of right ones among the answers that do not refuse, from which on a problem is known.
        score_name: of the score of 0 or 1 that says what is right.
    """

    refusal: str = "?"
    least: float = 0.5
    score_name: str = "exact"

    def __post_init__(self) -> None:
        check_fraction("reward", least=self.least)
        if not self.refusal.strip():
            raise ValueError("reward.refusal is empty; name the text that refuses")

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        valid = [episode for episode in episodes if episode.ended != "error"]
        known = {group: self._knows(members) for group, members in group_episodes(valid).items()}
        return [
            {REFUSED: float(self._refuses(episode)), KNOWN: float(known.get(episode.group, False))}
            for episode in episodes
        ]

    def _knows(self, group: Sequence[Episode]) -> bool:
        answers = [get_binary_score(episode, self.score_name) for episode in group if not self._refuses(episode)]
        return bool(answers) and sum(answers) >= self.least * len(answers)

    def _refuses(self, episode: Episode) -> bool:
        return str(episode.output).strip() == self.refusal.strip()

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        return [
            grade(
                bool(get_binary_score(episode, self.score_name)), episode.scores[REFUSED] > 0, episode.scores[KNOWN] > 0
            )
            for episode in group
        ]


class Refusals(Scripted):
    """Every answer is the refusal, so that each problem has one among its answers.

    Args:
        refusal: the text that refuses.
    """

    def __init__(self, refusal: str = "?"):
        self.refusal = refusal

    def answer(self, prompt: Prompt, ctx: Context, rng: np.random.Generator) -> str:
        return self.refusal

    def act(self, environment: TextEnvironment, rng: np.random.Generator) -> str:
        raise ConfigError("refusals answer problems, and are no actions of a text environment")


@dataclass(frozen=True)
class RefusalReliability(Evaluator):
    """Reliability of answers that may refuse: Ans * Truth + (1 - Ans) * Acc, the `mean`.

    Beside it stand `accuracy`, `truth`, `answered`, n and errors.
    Acc is the share of right answers, Truth 1 - the share of wrong ones, Ans 1 - the share of refusals.

    Args:
        score_name: of the score of 0 or 1 that says what is right.
        refusal_name: of the score of 0 or 1 that says what refuses.
    """

    score_name: str = "exact"
    refusal_name: str = REFUSED

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        valid = drop_errors(episodes)
        right = [get_binary_score(episode, self.score_name) for episode in valid]
        refused = [get_binary_score(episode, self.refusal_name) for episode in valid]
        accuracy, truth, answered, rely = reliability(sum(right), sum(refused), len(valid))
        return {
            "mean": rely,
            "accuracy": accuracy,
            "truth": truth,
            "answered": answered,
            "n": float(len(valid)),
            "errors": count_errors(episodes),
        }


def reliability(right: float, refused: float, count: int) -> tuple[float, float, float, float]:
    """Acc, Truth, Ans and Rely of numbers of right answers and refusals among all; NaN without an answer."""
    if not count:
        return (float("nan"),) * 4
    accuracy, answered = right / count, 1 - refused / count
    truth = 1 - (count - right - refused) / count
    return accuracy, truth, answered, answered * truth + (1 - answered) * accuracy
