"""Interface of tasks whose problems the policy proposes itself (self-play)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mmrl.types import Episode, Prompt, Task


@dataclass(frozen=True)
class Problem:
    """One that was found to be sound: plain values, so that it can be saved and sent between processes."""

    kind: str
    body: tuple[str, ...]


@dataclass(frozen=True)
class Verdict:
    """What became of a proposal or an answer.

    `outcome` is "right", "valid" (a sound proposal), "wrong", "broken" (not of the asked form), the name of what was
    unsound about a proposal, or "executor" if the executor failed, which is no fault of the policy.
    """

    outcome: str
    problem: Problem | None = None  # of a valid proposal
    scores: dict[str, float] = field(default_factory=dict)


class Game(Task):
    """Problems of several kinds that can be proposed, checked, asked and judged, all by execution.

    Scores of what is played: `earned`, `exact` (right, or sound), the same by role and kind, and what else is known.

    Everything is asked for many at once, so that an executor is started once. Its own prompts, train and held out, are
    for starting and measuring.
    """

    kinds: tuple[str, ...]

    @abstractmethod
    def seeds(self, kind: str) -> list[Problem]:
        """Sound problems to begin with."""

    @abstractmethod
    def ask(self, kind: str, known: Sequence[Problem], key: str) -> Prompt:
        """The prompt that asks for a new problem of a kind, in view of known ones."""

    @abstractmethod
    def check(self, proposals: Sequence[tuple[str, Prompt, str]]) -> list[Verdict]:
        """Whether each (kind, prompt, text) is a sound problem: well formed, executable, and the same each time."""

    @abstractmethod
    def pose(self, problem: Problem, key: str) -> Prompt:
        """The prompt that asks to solve it."""

    @abstractmethod
    def judge(self, answers: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        """Whether each text solves its problem."""

    def score(self, episode: Episode) -> dict[str, float]:
        return self.scores([episode])[0]

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        known: list[Any] = [episode.info.get("verdict") for episode in episodes]
        graded = iter(self.grade([episode for episode, said in zip(episodes, known) if said is None]))
        return [next(graded) if said is None else dict(said) for said in known]

    @abstractmethod
    def grade(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        """Scores of answers to the task's own prompts."""
