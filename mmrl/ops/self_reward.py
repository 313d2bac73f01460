"""Last-token self-rewards (LaSeR): the reward that the log-probability of one token after a completion implies."""

from __future__ import annotations

import torch
from torch import Tensor

from mmrl.ops.masked import zero_outside


def self_reward(
    logprobs: Tensor,  # [N, T] nats
    reference: Tensor | float,  # [N, T] nats, or the mean under the reference
    self_reward_mask: Tensor,  # [N, T] bool, True at most once in a row
    scale: float,
) -> Tensor:  # [N], 0 for rows without the token
    """Self-reward s = scale (log pi(z | x, y) - reference): the implicit reward of the completion, from one token.

    Source: LaSeR: Reinforcement Learning with Last-Token Self-Rewarding, 2025, arXiv:2510.14943.
    """
    return scale * zero_outside(logprobs - reference, self_reward_mask).sum(1)


def balanced_weights(
    positive: Tensor,  # [N] bool
    counted: Tensor,  # [N] bool
    ones: int,
    zeros: int,
) -> Tensor:  # [N]
    """Class weights n / (2 n_class), with which both classes count alike; 0 for rows that do not count.

    Args:
        ones: rows that count and are positive, of all processes.
        zeros: rows that count and are not.
    """
    n = ones + zeros
    of = torch.where(positive, n / (2 * max(ones, 1)), n / (2 * max(zeros, 1)))
    return torch.where(counted, of, 0.0)
