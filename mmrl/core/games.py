"""Interface of tasks whose problems the policy proposes itself (self-play)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mmrl.core.types import Episode, Prompt, Task


@dataclass(frozen=True)
class GameProblem:
    """A problem that passed `Game.check`, as plain values that can be saved and sent between processes."""

    kind: str
    body: tuple[str, ...]


@dataclass(frozen=True)
class Verdict:
    """Result of checking a proposal or an answer.

    `outcome` is "right", "valid" (a sound proposal), "wrong", "broken" (not of the asked form), the name of what was
    unsound about a proposal, or "executor" if the executor failed, which is no fault of the policy.
    """

    outcome: str
    problem: GameProblem | None = None  # of a valid proposal
    scores: dict[str, float] = field(default_factory=dict)


class Game(Task):
    """Problems of several kinds that can be proposed, checked, asked and judged, all by execution.

    Scores of episodes: `earned`, `exact` (right, or sound), the same by role and kind, and others of the task.

    Methods take many items at once, so that an executor is started once. The task's own prompts serve for warm start
    and evaluation.
    """

    kinds: tuple[str, ...]

    @abstractmethod
    def seeds(self, kind: str) -> list[GameProblem]:
        """Return the initial problems."""

    @abstractmethod
    def ask(self, kind: str, known: Sequence[GameProblem], key: str) -> Prompt:
        """Return the prompt that asks for a new problem of a kind, given known problems as examples."""

    @abstractmethod
    def check(self, proposals: Sequence[tuple[str, Prompt, str]]) -> list[Verdict]:
        """Check whether each (kind, prompt, text) is a sound problem: well formed, executable and deterministic."""

    @abstractmethod
    def pose(self, problem: GameProblem, key: str) -> Prompt:
        """Return the prompt that asks to solve a problem."""

    @abstractmethod
    def judge(self, answers: Sequence[tuple[GameProblem, str]]) -> list[Verdict]:
        """Judge whether each text solves its problem."""

    def score(self, episode: Episode) -> dict[str, float]:
        return self.scores([episode])[0]

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        verdicts: list[Any] = [episode.info.get("verdict") for episode in episodes]
        graded = iter(self.grade([episode for episode, verdict in zip(episodes, verdicts) if verdict is None]))
        return [next(graded) if verdict is None else dict(verdict) for verdict in verdicts]

    @abstractmethod
    def grade(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        """Score answers to the task's own prompts."""
