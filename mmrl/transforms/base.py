"""Transforms of episodes between scoring and collation: drop, sample more, relabel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from mmrl.types import Context, Episode


class EpisodeTransform(ABC):
    """Base class of transforms: maps this rank's scored episodes to the episodes to learn from."""

    min_group_size: int = 1  # episodes of one problem below which it would keep nothing

    def contexts(self) -> frozenset[str]:
        """Other contexts that it gives the rows."""
        return frozenset()

    def writes(self) -> frozenset[str]:
        """Columns that its completions carry beyond the collated ones."""
        return frozenset()

    @abstractmethod
    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]: ...


def check_group_size(transforms: Mapping[str, EpisodeTransform], group_size: int) -> None:
    """Raise ValueError if a transform needs larger groups than `group_size`."""
    for name, transform in transforms.items():
        if group_size < transform.min_group_size:
            raise ValueError(
                f"data.transforms.{name} ({type(transform).__name__}) compares the episodes of one problem and would "
                f"drop all of them with data.group_size={group_size}; set data.group_size to at least "
                f"{transform.min_group_size}, or data.transforms.{name}=null"
            )
