"""Discounted returns and generalised advantage estimates (GAE) on padded episodes [E, H].

Entries outside the mask are skipped as if they were not there: the choice before them is followed by the choice after
them. `bootstrap` is the value of what follows the last choice: 0 when the episode terminated, the predicted value when
it was truncated. This is the one place where termination and truncation differ.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mmrl.ops.masked import zero_outside


def discounted_returns(
    reward: Tensor,  # [E, H]
    mask: Tensor,  # [E, H] bool
    bootstrap: Tensor,  # [E]
    gamma: float,  # per step
) -> Tensor:  # [E, H]
    """Discounted return of each step: R_t = r_t + gamma * R_{t+1}."""
    following = bootstrap
    out = torch.zeros_like(reward)
    for t in reversed(range(reward.shape[1])):
        following = torch.where(mask[:, t], reward[:, t] + gamma * following, following)
        out[:, t] = zero_outside(following, mask[:, t])
    return out


def generalised_advantages(
    reward: Tensor,  # [E, H]
    values: Tensor,  # [E, H]
    mask: Tensor,  # [E, H] bool
    bootstrap: Tensor,  # [E]
    gamma: float,  # per step
    gae_lambda: float,
) -> Tensor:  # [E, H]
    """GAE: exponentially weighted mean of the n-step advantages, with weights gae_lambda^(n-1).

    A_t = delta_t + gamma * gae_lambda * A_{t+1} with delta_t = r_t + gamma * V_{t+1} - V_t; 0 outside the mask.
    Source: High-Dimensional Continuous Control Using Generalized Advantage Estimation, 2016, equation 16,
    arXiv:1506.02438.
    """
    following, advantage = bootstrap, torch.zeros_like(bootstrap)
    advantages = []
    steps = zip(*(column.t().contiguous().unbind() for column in (reward, values, mask)))
    for r, value, here in reversed(list(steps)):
        delta = torch.add(r, following, alpha=gamma) - value
        advantage = torch.where(here, torch.add(delta, advantage, alpha=gamma * gae_lambda), advantage)
        following = torch.where(here, value, following)
        advantages.append(advantage)
    return zero_outside(torch.stack(advantages[::-1], dim=1), mask) if advantages else torch.zeros_like(values)
