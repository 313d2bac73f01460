"""METRA: the skill reward, and the slack of the constraint that one environment step has at most length one.

Source: METRA: Scalable Unsupervised RL with Metric-Aware Abstraction, 2024, section 4, arXiv:2310.08887.
"""

from __future__ import annotations

from torch import Tensor


def skill_reward(
    before: Tensor,  # [N, K] phi(s)
    after: Tensor,  # [N, K] phi(s')
    skill: Tensor,  # [N, K]
) -> Tensor:  # [N]
    """METRA's reward of a transition for the skill z: (phi(s') - phi(s)) . z."""
    return ((after - before) * skill).sum(-1)


def constraint_slack(
    before: Tensor,  # [N, K]
    after: Tensor,  # [N, K] phi(s')
    epsilon: float,
) -> Tensor:  # [N]
    """Slack of METRA's constraint: min(epsilon, 1 - |phi(s') - phi(s)|^2 / K), negative for a step that is too long.

    The mean over dimensions is that of the authors' code; the paper has the sum.
    """
    return (1 - (after - before).square().mean(-1)).clamp(max=epsilon)


def centred_one_hot(
    skill: Tensor,  # [N, K]
) -> Tensor:  # [N, K]
    """(z - mean z) K / (K - 1): 1 for the skill itself and -1 / (K - 1) for each of the others."""
    count = skill.shape[-1]
    return (skill - skill.mean(-1, keepdim=True)) * count / (count - 1)
