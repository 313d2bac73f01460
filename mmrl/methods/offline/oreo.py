"""OREO: path-consistency losses of the values and of the policy over the suffixes of a trajectory.

OREO: Offline Reinforcement Learning for LLM Multi-Step Reasoning, 2024, section 3, arXiv:2412.16145.

With d_t = log pi - log pi_ref of choice t and a terminal reward R at discount 1, the optimum of E[R] - beta KL(pi ||
pi_ref) satisfies V_t = R - beta sum_{i>=t} d_i along every trajectory, on-policy or not.

- residuals of the identity: `value_residual`, `policy_residual`
- their squares as losses: `PathValue`, `PathPolicy`
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.objectives.soft_bellman import SoftBellmanTerm
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
    """Residual of the value V_t - R + beta D_t, D_t the suffix sum of log-ratios, without gradient."""
    return zero_outside(values - reward[:, None] + beta * suffix_sum(log_ratio.detach(), mask), mask)


def policy_residual(
    values: Tensor,  # [N, T] reward
    log_ratio: Tensor,  # [N, T] nats, with gradient
    reward: Tensor,  # [N]
    mask: Tensor,  # [N, T] bool
    beta: float,
) -> Tensor:  # [N, T], 0 outside the mask
    """Residual of the policy V_t - R + beta (d_t + D_{t+1}), with gradient through the log-ratio d_t only."""
    current = zero_outside(log_ratio, mask)
    later = suffix_sum(log_ratio.detach(), mask) - current.detach()
    return zero_outside(values.detach() - reward[:, None] + beta * (current + later), mask)


@dataclass(frozen=True)
class PathValue(SoftBellmanTerm):
    """Value loss (V_t - R + beta sum_{i>=t} d_i)^2, without gradient through the log-ratios d."""

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return value_residual(*self.parts(out, batch), self.beta).square()


@dataclass(frozen=True)
class PathPolicy(SoftBellmanTerm):
    """Policy loss (V_t - R + beta sum_{i>=t} d_i)^2 per choice, with gradient through d_t only."""

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return policy_residual(*self.parts(out, batch), self.beta).square()
