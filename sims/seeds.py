"""Seeds of initial states, whose lowest bit is the split (train or held out)."""

from __future__ import annotations

from typing import Literal

Split = Literal["train", "held_out"]
_TAGS: dict[str, int] = {"train": 0, "held_out": 1}


def seed_of(split: str, draw: int) -> int:
    """Seed of a split from a 64-bit draw; the seeds of the two splits are disjoint."""
    return (draw >> 4 << 1) | _TAGS[split]


def split_of(seed: int) -> Split:
    """Split that a seed belongs to."""
    return "held_out" if seed & 1 else "train"
