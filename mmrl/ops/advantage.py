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
    _, index, size = group.unique(return_inverse=True, return_counts=True)
    exact = reward.double()
    # measured from the group's minimum, equal rewards differ by exactly 0, whatever their common offset
    floor = exact.new_zeros(len(size)).scatter_reduce(0, index, exact, "amin", include_self=False)
    above = exact - floor[index]
    centred = above - _mean(above, index, size)[index]
    out = exact if baseline is None else centred
    if baseline == "leave_one_out":
        out = out * (size / (size - 1).clamp(min=1))[index]
    if scale is not None:
        free = size if scale == "std" else (size - 1).clamp(min=1)
        std = (_mean(centred.square(), index, size) * size / free).sqrt()[index]
        out = torch.where(std > 0, out / (std + epsilon), 0)
    return out.to(reward.dtype)


def _mean(value: Tensor, index: Tensor, size: Tensor) -> Tensor:
    return value.new_zeros(len(size)).index_add(0, index, value) / size


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
