"""From named scores to one number per episode."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from mmrl.types import Episode


class Reward(ABC):
    """Sees a whole group at once, so that ranks and comparisons within a group can be rewards."""

    @abstractmethod
    def __call__(self, group: Sequence[Episode]) -> Sequence[float]: ...
