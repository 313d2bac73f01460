"""Repeat a list in order over iterations."""

from __future__ import annotations

from collections.abc import Sequence


def take_cyclically(items: Sequence[int], position: int, count: int) -> tuple[list[int], int]:
    """Return `count` items from `position` on, after the last the first again, and the position after them."""
    selected = [items[(position + k) % len(items)] for k in range(count)]
    return selected, (position + count) % len(items)
