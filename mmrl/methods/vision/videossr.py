"""VideoSSR: self-supervised questions about clips, rewarded by how nearly their answers are right.

VideoSSR: Video Self-Supervised Reinforcement Learning, 2025, arXiv:2511.06281.

- altered frames, pasted shapes and shuffled frames in one mixture: the task clips, kinds grounding, paste and order
- the graded score of each: `grade_pretext`
"""

from __future__ import annotations


def grade_pretext(iou: float | None = None, counts: float | None = None, order: float | None = None) -> float:
    """Score in [0, 1] of an answer: the overlap of intervals, the nearness of counts, or that of an order.

    Source: VideoSSR, 2025, smooth rewards of the three pretext tasks, arXiv:2511.06281.
    """
    scores = [score for score in (iou, counts, order) if score is not None]
    if len(scores) != 1:
        raise ValueError(
            f"grade_pretext needs one of the scores iou, counts and order, got iou={iou}, counts={counts} and "
            f"order={order}; use the task clips with the kinds grounding, paste and order"
        )
    return scores[0]
