"""Similarity of sets."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any


def jaccard(ours: Collection[Any], theirs: Collection[Any]) -> float:
    """Size of the intersection of two sets over that of the union; 0 if both are empty."""
    one, other = set(ours), set(theirs)
    return len(one & other) / len(one | other) if one | other else 0.0
