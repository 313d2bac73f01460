"""Reward: maps the named scores of a group to one number per episode."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from mmrl.core.types import Context, Episode, Prompt, Task


@runtime_checkable
class NamedScores(Protocol):
    """A task that names its scores before an episode is scored."""

    def score_names(self, prompt: Prompt) -> Iterable[str]: ...


class Reward(ABC):
    """Base class of rewards. It is called with a whole group, so that rewards may compare its episodes."""

    foreign = False  # whether it holds functions or models that others wrote, which are tried before a run

    @property
    def constant(self) -> bool:
        """Whether every episode has the reward 0, as where the simulator pays each decision."""
        return False

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        """Further named scores of finished episodes of whole groups, beside those of the task."""
        return [{} for _ in episodes]

    def check_task(self, task: Task) -> None:
        """Refuse a task whose prompts lack what the reward reads. Called before the first rollout."""

    def at(self, iteration: int) -> Reward:
        """Return the reward of an iteration of training: itself, unless its weights follow a schedule."""
        return self

    def sampled_models(self) -> frozenset[str]:
        """Return the names of the frozen models of the run that it asks, as in `model.frozen_models`."""
        return frozenset()

    def bind(self, ctx: Context) -> Reward:
        """Return the reward of a context's episodes: itself, unless it asks the engine or the models of the run."""
        return self

    @abstractmethod
    def __call__(self, group: Sequence[Episode]) -> Sequence[float]: ...
