"""Process rewards: rewards of single tokens from a reward model that was trained on outcomes."""

from __future__ import annotations

import torch
from torch import Tensor

from mmrl.ops.masked import masked_mean, zero_outside


def implicit_reward(
    logprobs: Tensor,  # [N, T] nats, of the reward model
    reference: Tensor,  # [N, T] nats
    mask: Tensor,  # [N, T] bool
) -> Tensor:  # [N, T] nats, 0 outside the mask
    """Implicit process reward q_t = log phi(y_t) - log ref(y_t): the part of token t in the reward sum_t q_t.

    Source: Free Process Rewards without Process Labels, 2024, arXiv:2412.01981.
    """
    return zero_outside(logprobs - reference, mask)


def leave_one_out_process(
    process: Tensor,  # [E, H]
    outcome: Tensor,  # [E]
    mask: Tensor,  # [E, H] bool
    group: Tensor,  # [E] ids
    weights: tuple[float, float] = (5.0, 5.0),
) -> Tensor:  # [E, H], 0 outside the mask
    """Return to go of token rewards and an outcome at the end, each less what the K - 1 others of the group earn.

    Tokens get q_t K / (K - 1) - sum_j mean_t q_jt / (K - 1), the last one o K / (K - 1) - sum_j o_j / (K - 1) besides,
    with the weights of process and outcome. A group of one has no baseline: 0.
    Source: Process Reinforcement through Implicit Rewards, 2025, section 3, arXiv:2502.01456.
    """
    _, index, size = group.unique(return_inverse=True, return_counts=True)
    others = (size - 1).clamp(min=1)[index].to(process.dtype)
    factor = torch.where(size[index] > 1, size[index] / others, 0.0)

    def total(value: Tensor) -> Tensor:
        return value.new_zeros(len(size)).index_add(0, index, value)[index] / others * (factor > 0)

    tokens = process * factor[:, None] - total(masked_mean(process, mask, dim=1))[:, None]
    ends = outcome * factor - total(outcome)
    reward = weights[0] * zero_outside(tokens, mask)
    to_go = reward.flip(1).cumsum(1).flip(1) + weights[1] * ends[:, None]
    return zero_outside(to_go, mask)
