"""Lambda-returns of trajectories in which every decision has a discount factor of its own."""

from __future__ import annotations

import torch
from torch import Tensor


def lambda_returns(
    reward: Tensor,  # [N, H]
    discount: Tensor,  # [N, H]
    next_value: Tensor,  # [N, H]
    gae_lambda: float,
) -> Tensor:  # [N, H]
    """Lambda-return: R_t = r_t + d_t ((1 - lambda) V_{t+1} + lambda R_{t+1}), with V_H for the return after H.

    It is the mean of the n-step returns with weights (1 - lambda) lambda^(n-1), the longest having all the rest.
    Source: Dream to Control, 2020, equation 6, arXiv:1912.01603.

    Args:
        reward: of each decision.
        discount: factor of all that follows the decision; 0 where nothing does.
        next_value: value of the state after each decision.
        gae_lambda: 0 for returns of one step, 1 for the longest.
    """
    following = next_value[:, -1]
    returns = []
    for step in reversed(range(reward.shape[1])):
        ahead = torch.lerp(next_value[:, step], following, gae_lambda)
        following = reward[:, step] + discount[:, step] * ahead
        returns.append(following)
    return torch.stack(returns[::-1], dim=1)
