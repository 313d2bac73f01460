"""Reward of every format of puzzle: FunctionReward(functions: [tasks.jigsaw.rewards:arrangement])."""

from __future__ import annotations


def arrangement(exact: float, tiles: float | None = None, iou: float | None = None) -> float:
    """Accuracy of an answer: the share of the tiles in their place, a box's IoU, or whether the letter is right.

    Source: Jigsaw-R1, 2025, arXiv:2505.23590, rewards of the formats grid, box and pair.
    """
    return next((score for score in (tiles, iou) if score is not None), exact)
