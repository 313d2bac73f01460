"""VLA-R1: reward boxes by their GIoU and trajectories by an oriented Frechet distance, in one mixture.

VLA-R1: Enhancing Reasoning in Vision-Language-Action Models, 2025, arXiv:2510.01623.

- the score of a box or of a trajectory, 0.9 of the reward: `geometry`
- (GIoU + 1) / 2 of a box: the task scenes_grounding; the distance of trajectories: the task scenes_trajectory
"""

from __future__ import annotations


def geometry(giou: float | None = None, frechet: float | None = None) -> float:
    """Score in [0, 1] of an answer's geometry: `giou` of a box or `frechet` of a trajectory, whichever the task gives.

    Source: VLA-R1, 2025, affordance and trajectory rewards, arXiv:2510.01623.
    """
    if (giou is None) == (frechet is None):
        raise ValueError(
            f"geometry needs one of the scores giou and frechet, got giou={giou} and frechet={frechet}; use a task "
            "that has one of them, such as scenes_grounding or scenes_trajectory"
        )
    return frechet if giou is None else giou  # type: ignore[return-value]
