"""Reward: maps the named scores of a group to one number per episode."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from mmrl.types import Episode


class Reward(ABC):
    """Base class of rewards. It is called with a whole group, so that rewards may compare its episodes."""

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        """Further named scores of finished episodes of whole groups, beside those of the task."""
        return [{} for _ in episodes]

    @abstractmethod
    def __call__(self, group: Sequence[Episode]) -> Sequence[float]: ...
