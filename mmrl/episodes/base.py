"""What may happen to episodes between scoring and collation: dropping, refilling, relabelling."""

from __future__ import annotations

from abc import ABC, abstractmethod

from mmrl.types import Context, Episode


class EpisodeTransform(ABC):
    """Takes this rank's scored episodes, whole groups together, and gives those to learn from."""

    contexts: frozenset[str] = frozenset()  # other contexts that it gives the rows
    min_group_size: int = 1  # attempts at one problem below which it would keep nothing
    writes: frozenset[str] = frozenset()  # columns that its completions carry beyond the collated ones

    @abstractmethod
    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]: ...
