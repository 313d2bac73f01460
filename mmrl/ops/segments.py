"""Advantages over segments of a row's choices (reasoning steps, turns, nodes of a tree) and over baseline groups."""

from __future__ import annotations

import torch
from torch import Tensor


def segment_advantage(
    values: Tensor,  # [N, T], of the state in which the choice's segment begins: the same for all its choices
    segment: Tensor,  # [N, T] ids >= 0 that do not fall along a row
    reward: Tensor,  # [N] given at the end of the row
    mask: Tensor,  # [N, T] bool
    gamma: float = 1.0,
) -> Tensor:  # [N, T]
    """What each segment changed: gamma * V(next segment) - V(segment), and reward - V for the last segment.

    The same for all choices of a segment; 0 outside the mask. With gamma 1 the advantages of a row's segments sum to
    reward - V(first). Source: VinePPO, 2024, arXiv:2410.01679, equation 7.
    """
    inside = torch.where(mask, values, 0)
    reached = torch.where(mask, segment, -1).cummax(1).values
    before = torch.cat([reached.new_full((len(reached), 1), -1), reached[:, :-1]], 1)
    rank = (mask & (segment != before)).cumsum(1)  # 1, 2, ... of the segments that hold a choice
    worth = inside.new_zeros(len(inside), inside.shape[1] + 2).scatter(1, torch.where(mask, rank, 0), inside)
    last = rank == rank[:, -1:]
    following = torch.where(last, reward[:, None], gamma * worth.gather(1, rank + 1))
    return torch.where(mask, following - inside, 0)


def role_advantage(
    reward: Tensor,  # [N]
    baseline_group: Tensor,  # [N] ids
    scale: bool = True,
    epsilon: float = 1e-6,
) -> Tensor:  # [N]
    """Advantage over the mean of the baseline group, in units of its sample std: (r - m) / (s + epsilon).

    Exactly 0 in a group whose rewards are all equal, and for a row that is alone in its group.
    Source: Zhao et al., "Absolute Zero", 2025, arXiv:2505.03335, equation 8.
    """
    _, index, size = baseline_group.unique(return_inverse=True, return_counts=True)
    exact = reward.double()
    floor = exact.new_zeros(len(size)).scatter_reduce(0, index, exact, "amin", include_self=False)
    above = exact - floor[index]  # equal rewards differ by exactly 0
    mean = above.new_zeros(len(size)).index_add(0, index, above) / size
    centred = above - mean[index]
    if scale:
        square = centred.new_zeros(len(size)).index_add(0, index, centred.square())
        std = (square / (size - 1).clamp(min=1)).sqrt()[index]
        centred = torch.where(std > 0, centred / (std + epsilon), 0)
    return centred.to(reward.dtype)
