"""Rewards of comparisons: reward=tasks.grammar.rewards:win_rate."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.grammar.cycle import CyclicPreference

_PREFERENCE = CyclicPreference(longest=16)


def win_rate(completions: Sequence[str]) -> list[float]:
    """Return the mean probability that each completion is preferred to the others of its prompt; 1/2 for one alone."""
    classes = [_PREFERENCE(first, second) for first in completions for second in completions]
    size = len(completions)
    rows = [sum(classes[i * size : (i + 1) * size]) - 0.5 for i in range(size)]
    return [row / (size - 1) if size > 1 else 0.5 for row in rows]
