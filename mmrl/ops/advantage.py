"""Group-relative advantages: compare rewards within the completions of a prompt or a baseline group."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Baseline = Literal["mean", "leave_one_out"]


Scale = Literal["std", "sample"]


def group_advantage(
    reward: Tensor,  # [E]
    group: Tensor,  # [E] ids
    baseline: Baseline | None = "mean",
    scale: Scale | None = "std",
    epsilon: float = 1e-4,
) -> Tensor:  # [E]
    """GRPO advantage: the reward minus the baseline of its group, in units of the group's std when `scale` is given.

    A_i = (r_i - b_i) / (s + epsilon). b: the group's mean, or the mean of the G - 1 others, or 0. s: the group's
    population ("std") or sample ("sample", over G - 1) standard deviation; without it A_i = r_i - b_i.
    Exactly 0 in a group whose rewards are all equal. A group of one has no baseline: 0 with any
    baseline. Source: DeepSeekMath, 2024, section 4.1.2, arXiv:2402.03300; leave_one_out: Buy 4 REINFORCE Samples, Get a
    Baseline for Free!, 2019.
    """
    if baseline is None and scale is None:
        return reward.clone()
    index, size, centred = _centre(reward.double(), group)
    out = reward.double() if baseline is None else centred
    if baseline == "leave_one_out":
        out = out * (size / (size - 1).clamp(min=1))[index]
    if scale is not None:
        std = _std(centred, index, size, scale)
        out = torch.where(std > 0, out / (std + epsilon), 0)
    return out.to(reward.dtype)


def step_advantage(
    reward: Tensor,  # [N, T], of a step at its last choice
    segment: Tensor,  # [N, T] ids >= 0, of the step of each choice
    group: Tensor,  # [N] ids
    mask: Tensor,  # [N, T] bool
    normalise: bool = True,
    epsilon: float = 1e-4,
) -> Tensor:  # [N, T], 0 outside the mask
    """Sum of the step rewards from each choice to the end, compared within the group.

    normalise: each step reward is (r - mean) / (std + epsilon) over all steps of the group before it is summed; 0 where
    all are equal. Otherwise the mean over the group of the sums of whole rows is subtracted.
    Source: DeepSeekMath, 2024, section 4.1.3 (process supervision), arXiv:2402.03300.
    """
    inside = torch.where(mask, reward, 0).double()
    following = torch.cat([segment[:, 1:], segment.new_full((len(segment), 1), -1)], 1)
    ends = mask & (segment != following)
    if normalise:
        groups = group[:, None].expand_as(mask)[ends]
        inside = inside.new_zeros(inside.shape).masked_scatter(
            ends, group_advantage(inside[ends], groups, "mean", "std", epsilon)
        )
    to_go = inside.flip(1).cumsum(1).flip(1)
    if not normalise:
        total = inside.sum(1)
        to_go = to_go - (total - group_advantage(total, group, "mean", None))[:, None]
    return torch.where(mask, to_go, 0).to(reward.dtype)


def group_std(
    reward: Tensor,  # [E]
    group: Tensor,  # [E] ids
    scale: Scale = "std",
) -> Tensor:  # [E]
    """Standard deviation of the rewards of an episode's group: population ("std") or sample ("sample")."""
    index, size, centred = _centre(reward.double(), group)
    return _std(centred, index, size, scale).to(reward.dtype)


def group_mean(
    value: Tensor,  # [N], with gradient
    group: Tensor,  # [N] ids
    counted: Tensor,  # [N] bool
) -> tuple[Tensor, Tensor]:  # [N] and [N]
    """Mean of the counted rows of each row's group, 0 where there are none, and their number."""
    ids, index = group.unique(return_inverse=True)
    total = value.new_zeros(len(ids)).index_add(0, index, torch.where(counted, value, 0))
    count = value.new_zeros(len(ids)).index_add(0, index, counted.to(value.dtype))
    return (total / count.clamp(min=1))[index], count[index]


def _centre(reward: Tensor, group: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Place of each episode's group [E], sizes of the groups, and rewards less the mean of their group [E]."""
    _, index, size = group.unique(return_inverse=True, return_counts=True)
    # measured from the group's minimum, equal rewards differ by exactly 0, whatever their common offset
    floor = reward.new_zeros(len(size)).scatter_reduce(0, index, reward, "amin", include_self=False)
    above = reward - floor[index]
    return index, size, above - _mean(above, index, size)[index]


def _std(centred: Tensor, index: Tensor, size: Tensor, scale: Scale) -> Tensor:
    free = size if scale == "std" else (size - 1).clamp(min=1)
    return (_mean(centred.square(), index, size) * size / free).sqrt()[index]


def _mean(value: Tensor, index: Tensor, size: Tensor) -> Tensor:
    return value.new_zeros(len(size)).index_add(0, index, value) / size
