"""What may happen to episodes between scoring and collation: dropping, refilling, relabelling."""

from __future__ import annotations

from abc import ABC, abstractmethod

from mmrl.types import Context, Episode


class EpisodeTransform(ABC):
    """Takes this rank's scored episodes, whole groups together, and gives those to learn from."""

    writes: frozenset[str] = frozenset()  # columns that it gives every row

    @abstractmethod
    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]: ...
