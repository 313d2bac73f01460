"""Curriculum: which prompts to sample in an iteration."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from mmrl.core.groups import get_score
from mmrl.core.types import Context, Episode


class Curriculum(ABC):
    """Base class of curricula. All ranks call it with equal arguments and must get equal results."""

    @abstractmethod
    def select(self, count: int, ctx: Context) -> list[int]:
        """Select the prompts of this iteration over all ranks, as indices into ctx.task."""

    def observe(self, groups: Sequence[Sequence[Episode]]) -> None:
        """Update statistics with the scored groups of all ranks; the episodes have no turns."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""


class Selection:
    """The problems that were selected in an iteration, so that none is selected twice in it."""

    def __init__(self) -> None:
        self.iteration, self.taken = -1, set[int]()

    def begin(self, count: int, ctx: Context) -> set[int]:
        """Return the problems selected in this iteration; raise if fewer than `count` others are left."""
        if self.iteration != ctx.iteration:
            self.iteration, self.taken = ctx.iteration, set()
        if len(ctx.task) - len(self.taken) < count:
            raise ValueError(
                f"the curriculum is asked for {count} further problems in one iteration, but task {ctx.task.name!r} "
                f"has {len(ctx.task)}; lower data.num_prompts"
            )
        return self.taken

    def state(self) -> tuple[int, list[int]]:
        return self.iteration, sorted(self.taken)

    def load_state(self, state: tuple[int, list[int]]) -> None:
        self.iteration, self.taken = state[0], set(state[1])


def success_rates(group: Sequence[Episode], score_name: str) -> list[float]:
    """The scores in [0, 1] of a group's episodes without errors."""
    rates = [get_score(episode, score_name) for episode in group if episode.ended != "error"]
    if any(not 0 <= rate <= 1 for rate in rates):
        raise ValueError(
            f"curriculum.score_name={score_name!r} of {group[0].prompt.key!r} is {rates}, no success rate in [0, 1]"
        )
    return rates
