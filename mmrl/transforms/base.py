"""Transforms of episodes between scoring and collation: drop, sample more, relabel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any

from mmrl.core.types import Context, Episode


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


class StatefulTransform(EpisodeTransform):
    """Base class of transforms with a state, which checkpoints save: a resumed run is the uninterrupted one.

    The state must be a function of what all ranks gathered (`ctx.collector.gather`), so that it is the same on each of
    them; another one is refused when a checkpoint is written. With asynchronous collection the transform runs in the
    thread, and a checkpoint has the state after the collection that was trained on last.
    """

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """State to save, as tensors, plain values, and lists and dictionaries of them."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state."""


def find_readers(transforms: Mapping[str, EpisodeTransform], models: Collection[str]) -> list[tuple[str, str]]:
    """List the transforms that read one of these models, by the names of transform and model in their arguments."""
    return [
        (name, value)
        for name, part in transforms.items()
        for value in vars(part).values()
        if isinstance(value, str) and value in models
    ]


def check_group_size(transforms: Mapping[str, EpisodeTransform], group_size: int) -> None:
    """Raise ValueError if a transform needs larger groups than `group_size`."""
    for name, transform in transforms.items():
        if group_size < transform.min_group_size:
            raise ValueError(
                f"data.transforms.{name} ({type(transform).__name__}) compares the episodes of one problem and would "
                f"drop all of them with data.group_size={group_size}; set data.group_size to at least "
                f"{transform.min_group_size}, or data.transforms.{name}=null"
            )
