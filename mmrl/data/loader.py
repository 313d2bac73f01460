"""Loader for training or validation that generates its data when it is iterated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


class IterationLoader:
    """Sized iterable that calls `make` for every pass.

    Args:
        make: yields the batches of one pass.
        length: how many; Lightning prefetches from loaders without a length.
    """

    def __init__(self, make: Callable[[], Iterator[Any]], length: int):
        self._make, self._length = make, length

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        return self._make()
