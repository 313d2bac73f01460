"""A seed of an initial state says which split it belongs to: its lowest bit."""

from __future__ import annotations

from typing import Literal

Split = Literal["train", "held_out"]
_TAGS: dict[str, int] = {"train": 0, "held_out": 1}


def seed_of(split: str, draw: int) -> int:
    """The seed of a split for a 64-bit draw; a seed of one split can never be a seed of the other."""
    return (draw >> 4 << 1) | _TAGS[split]


def split_of(seed: int) -> Split:
    """The split that a seed belongs to."""
    return "held_out" if seed & 1 else "train"
