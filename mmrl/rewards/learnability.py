"""What a proposed problem is worth."""

from __future__ import annotations


def learnability(solved: float) -> float:
    """1 - a of a problem that is solved a share a of the time, and 0 for one that never is: hard, but not hopeless.

    Source: Zhao et al., "Absolute Zero", 2025, arXiv:2505.03335, equation 4.
    """
    if not 0 <= solved <= 1:
        raise ValueError(f"the success rate must lie between 0 and 1, got {solved}")
    return 0.0 if solved == 0 else 1.0 - solved
