"""A map of states in which one step of the world is at most one long, and how far a step goes along a skill.

Source: METRA: Scalable Unsupervised RL with Metric-Aware Abstraction, 2024, section 4, arXiv:2310.08887.
"""

from __future__ import annotations

from torch import Tensor


def skill_progress(
    before: Tensor,  # [N, K] place on the map
    after: Tensor,  # [N, K]
    skill: Tensor,  # [N, K]
) -> Tensor:  # [N]
    """(phi(s') - phi(s)) . z: what a step is worth to the one who is to move along z."""
    return ((after - before) * skill).sum(-1)


def step_slack(
    before: Tensor,  # [N, K]
    after: Tensor,  # [N, K]
    most: float,
) -> Tensor:  # [N]
    """min(most, 1 - |phi(s') - phi(s)|^2 / K): what is left of the length that one step may have, negative beyond it.

    The mean over dimensions is that of the authors' code; the paper has the sum.
    """
    return (1 - (after - before).square().mean(-1)).clamp(max=most)


def centred_one_hot(
    skill: Tensor,  # [N, K]
) -> Tensor:  # [N, K]
    """(z - mean z) K / (K - 1): 1 for the skill itself and -1 / (K - 1) for each of the others."""
    count = skill.shape[-1]
    return (skill - skill.mean(-1, keepdim=True)) * count / (count - 1)
