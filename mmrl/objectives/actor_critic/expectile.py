"""Expectile regression, by which a state value approaches the best recorded action without asking for another one."""

from __future__ import annotations

import torch
from torch import Tensor


def expectile_loss(
    error: Tensor,  # any shape, u = Q - V
    expectile: float,  # tau in (0, 1)
) -> Tensor:  # shape of the error
    """Asymmetric squared loss |tau - 1(u < 0)| u^2, whose minimum over V is the tau-expectile of Q.

    Source: Kostrikov et al., "Offline Reinforcement Learning with Implicit Q-Learning", 2021, equation 5.
    """
    return torch.where(error < 0, 1 - expectile, expectile) * error.square()
