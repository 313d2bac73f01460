"""Numbers about finished episodes of the held-out split."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from mmrl.types import Episode


class Evaluator(ABC):
    """Sees all evaluation episodes of all ranks (light episodes: no turns) and names some numbers."""

    @abstractmethod
    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]: ...
