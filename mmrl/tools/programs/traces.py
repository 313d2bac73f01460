"""Recorded episodes by the names of their states, and whether a reward puts them in the right order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mmrl.tools.programs.program import Step


@dataclass
class Trace:
    """An episode.

    Args:
        steps: its decisions.
        score: of the simulator: its success where it reports one, else its return.
    """

    steps: list[Step] = field(default_factory=list)
    score: float = 0.0


def order_share(written: Sequence[float], own: Sequence[float]) -> float | None:
    """Share of the pairs of episodes of different score that a reward puts in the order of their scores.

    A pair that the reward does not tell apart is in no order. With scores 1 and 0 for success and failure it is the
    trajectory preference of CARD (Sun et al. 2024, arXiv:2410.14660, section 4.3).

    Args:
        written: sum of the reward over each episode.
        own: score of each episode.

    Returns:
        The share; None without a pair of different scores.
    """
    pairs = [(i, j) for i, one in enumerate(own) for j, other in enumerate(own) if one > other]
    return sum(written[i] > written[j] for i, j in pairs) / len(pairs) if pairs else None
