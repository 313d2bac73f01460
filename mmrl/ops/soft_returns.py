"""Soft Bellman residuals and returns along a row, for rewards that hold a KL penalty to a reference.

The optimum of E[sum r] - beta KL(pi || ref) satisfies beta log(pi / ref) = Q - V for every choice, so that a policy's
own log-ratio is its advantage. Choices outside the mask are passed over: V_{t+1} is that of the row's next choice
inside the mask, and 0 after its last one, where the row's reward is given.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mmrl.ops.masked import last_inside, zero_outside


def next_inside(
    value: Tensor,  # [N, T]
    mask: Tensor,  # [N, T] bool
    last: Tensor | float = 0.0,  # [N] or a number
) -> Tensor:  # [N, T]
    """Return the value of the row's next choice inside the mask, and `last` after its last one."""
    end = mask.shape[1]
    places = torch.arange(end, device=mask.device).expand(mask.shape)
    here = torch.where(mask, places, end).flip(1).cummin(1).values.flip(1)  # first choice inside from here on
    following = torch.cat([here[:, 1:], here.new_full((len(here), 1), end)], 1)
    final = torch.as_tensor(last, dtype=value.dtype, device=value.device).expand(len(value))[:, None]
    return torch.cat([value, final], 1).gather(1, following)


def place_at_end(
    reward: Tensor,  # [N]
    mask: Tensor,  # [N, T] bool
) -> Tensor:  # [N, T]
    """Return a row's reward at its last choice inside the mask, 0 at the others."""
    places = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    return torch.where(mask & (places == last_inside(mask)[:, None]), reward[:, None], 0)


def log_ratio_residual(
    log_ratio: Tensor,  # [N, T] nats, with gradient
    values: Tensor,  # [N, T] reward
    reward: Tensor,  # [N, T]
    mask: Tensor,  # [N, T] bool
    beta: float,
) -> Tensor:  # [N, T], 0 outside the mask
    """beta log(pi / ref)_t - (r_t + V_{t+1} - V_t): the log-ratio of a choice against its one-step advantage.

    Source: Enhancing Multi-Step Reasoning Abilities of Language Models through Direct Q-Function Optimization, 2024,
    arXiv:2410.09302.
    """
    inside = zero_outside(values, mask).detach()
    advantage = reward + next_inside(inside, mask) - inside
    return zero_outside(beta * zero_outside(log_ratio, mask) - advantage, mask)


def soft_lambda_returns(
    log_ratio: Tensor,  # [N, T] nats
    values: Tensor,  # [N, T] reward
    reward: Tensor,  # [N, T]
    mask: Tensor,  # [N, T] bool
    beta: float,
    gae_lambda: float,
) -> Tensor:  # [N, T], 0 outside the mask, without gradient
    """Lambda-return on soft rewards: G_t = r_t - beta log(pi / ref)_t + (1 - lambda) V_{t+1} + lambda G_{t+1}.

    Source: Direct Q-Function Optimization, 2024, arXiv:2410.09302.
    """
    inside = zero_outside(values, mask).detach()
    soft = zero_outside(reward, mask) - beta * zero_outside(log_ratio, mask).detach()
    following = next_inside(inside, mask)
    out, later = torch.zeros_like(soft), soft.new_zeros(len(soft))
    for t in reversed(range(soft.shape[1])):
        here = soft[:, t] + (1 - gae_lambda) * following[:, t] + gae_lambda * later
        later = torch.where(mask[:, t], here, later)
        out[:, t] = here
    return zero_outside(out, mask)
