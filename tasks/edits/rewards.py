"""Reward of edits: reward=tasks.edits.rewards:swe_rl."""

from __future__ import annotations


def swe_rl(format: float, similarity: float) -> float:
    """SWE-RL's reward: -1 for an answer that is no block that fits the file, else the similarity of the patches.

    Source: Wei et al., "SWE-RL", arXiv 2502.18449, equation 1.
    """
    return similarity if format >= 1 else -1.0
