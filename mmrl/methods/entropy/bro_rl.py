"""BroRL: large groups per prompt, and the probability mass of correct answers by sampled and unsampled tokens.

BroRL: Scaling Reinforcement Learning via Broadened Exploration, 2025, arXiv:2510.01180.

- change of the probability of a correct answer by one step, in closed form: `mass_balance`
- recipe `bro_rl`: large groups, group mean and batch std, clip-higher, resets of the reference
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class MassBalance:
    """First-order change of the probability of correct answers by one gradient step on a softmax over V answers."""

    correct: Tensor  # Q, probability of a correct answer before
    change: Tensor  # of Q, per unit of learning rate as given
    unsampled: Tensor  # part of the change by answers that were not drawn


def mass_balance(
    logits: Tensor,  # [V]
    counts: Tensor,  # [V] draws of each answer, N in all
    is_correct: Tensor,  # [V] bool
    lr: float,
    reward: float = 1.0,
    penalty: float = -1.0,
) -> MassBalance:
    """Change of the mass of correct answers under the surrogate -(1/N) sum_j n_j R_j p_j, to the first order.

    dz_j = (lr / N) p_j (n_j R_j - S) with S = sum_j n_j R_j p_j, R_j the reward of a correct answer and the penalty of
    a wrong one. dQ = (lr / N) [(1 - Q) (R sum_P n p^2 - S sum_P p^2) - Q (W sum_notP n p^2 - S sum_notP p^2)], and the
    part of the answers with n_j = 0 is (lr / N) S (Q sum_(notP, n=0) p^2 - (1 - Q) sum_(P, n=0) p^2), which vanishes
    with growing N. Source: BroRL, 2025, section 3, arXiv:2510.01180.
    """
    if counts.sum() <= 0:
        raise ValueError("mass_balance: no answer was drawn; counts must have a positive sum")
    # (answers,) probabilities, draws and rewards
    p, n = logits.softmax(0), counts.to(logits.dtype)
    rewards = torch.where(is_correct, reward, penalty).to(logits.dtype)
    # scalars Q and S, and (answers,) squared probabilities
    mass, total, square = p[is_correct].sum(), (n * rewards * p).sum(), p.square()
    gain = n * rewards * square - total * square  # of each answer, times N / lr
    rate = lr / n.sum()
    # scalar dQ: terms of correct answers have the factor 1 - Q, those of wrong answers -Q
    change = rate * ((1 - mass) * gain[is_correct].sum() - mass * gain[~is_correct].sum())
    # (answers,) squared probabilities of answers without a draw, the part that vanishes with growing N
    missed = square * (n == 0)
    unsampled = rate * total * (mass * missed[~is_correct].sum() - (1 - mass) * missed[is_correct].sum())
    return MassBalance(mass, change, unsampled)
