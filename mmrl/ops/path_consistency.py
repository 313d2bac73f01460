"""The soft Bellman identity over whole suffixes of a trajectory, as residuals of its value and of its policy.

With d_t = log pi - log pi_ref of choice t and a terminal reward R at discount 1, the optimum of E[R] - beta KL(pi ||
pi_ref) satisfies V_t = R - beta sum_{i>=t} d_i along every trajectory, whoever made it.
Source: Offline Reinforcement Learning for LLM Multi-Step Reasoning, 2024, section 3, arXiv:2412.16145.
"""

from __future__ import annotations

from torch import Tensor

from mmrl.ops.masked import zero_outside


def suffix_sum(
    value: Tensor,  # [N, T]
    mask: Tensor,  # [N, T] bool
) -> Tensor:  # [N, T], 0 outside the mask
    """sum_{i>=t} value_i over the choices inside the mask."""
    inside = zero_outside(value, mask)
    return zero_outside(inside.flip(1).cumsum(1).flip(1), mask)


def value_residual(
    values: Tensor,  # [N, T] reward, with gradient
    log_ratio: Tensor,  # [N, T] nats
    reward: Tensor,  # [N]
    mask: Tensor,  # [N, T] bool
    beta: float,
) -> Tensor:  # [N, T], 0 outside the mask
    """V_t - R + beta D_t, D_t the suffix sum of log-ratios, a constant."""
    return zero_outside(values - reward[:, None] + beta * suffix_sum(log_ratio.detach(), mask), mask)


def policy_residual(
    values: Tensor,  # [N, T] reward
    log_ratio: Tensor,  # [N, T] nats, with gradient
    reward: Tensor,  # [N]
    mask: Tensor,  # [N, T] bool
    beta: float,
) -> Tensor:  # [N, T], 0 outside the mask
    """V_t - R + beta (d_t + D_{t+1}): only the choice's own log-ratio d_t carries gradient."""
    own = zero_outside(log_ratio, mask)
    later = suffix_sum(log_ratio.detach(), mask) - own.detach()
    return zero_outside(values.detach() - reward[:, None] + beta * (own + later), mask)
