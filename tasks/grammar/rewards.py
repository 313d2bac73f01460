"""Rewards of comparisons: reward=tasks.grammar.rewards:win_rate."""

from __future__ import annotations

from collections.abc import Sequence

from mmrl.rewards.models.oracle import mean_preferences
from tasks.grammar.cycle import CyclicPreference

_PREFERENCE = CyclicPreference(longest=16)


def win_rate(completions: Sequence[str]) -> list[float]:
    """Return the mean probability that each completion is preferred to the others of its prompt; 1/2 for one alone."""
    return mean_preferences(completions, _PREFERENCE)
