"""Forced tokens around a completion: text of others in the policy's row, which is read and not trained on."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from mmrl.core.columns import is_ragged, pad_value, per_choice
from mmrl.core.types import Completion


def surround(done: Completion, before: Tensor, after: Tensor, output: str) -> Completion:
    """Return a completion with forced ids before and after those that the policy chose.

    Forced ids have `action_mask` False, log-probability 0 and the padding of every further column per choice.

    Args:
        done: of the policy, with T choices.
        before: [P] ids that the policy continued.
        after: [Q] ids that continue it.
        output: text of all P + T + Q ids.
    """

    # [T, ...] per-choice column to [P + T + Q, ...]
    def fill(part: Tensor, value: float) -> Tensor:
        shape = part.shape[1:]
        return torch.cat(
            [part.new_full((len(before), *shape), value), part, part.new_full((len(after), *shape), value)]
        )

    # columns per row and ragged columns are not padded
    extra = {
        name: fill(column, pad_value(name)) if per_choice(name) and not is_ragged(name) else column
        for name, column in done.extra.items()
    }
    return replace(
        done,
        action=torch.cat([before.to(done.action.dtype), done.action, after.to(done.action.dtype)]),
        behavior_logprobs=fill(done.behavior_logprobs, 0),
        action_mask=fill(done.action_mask, False),
        output=output,
        value=None if done.value is None or not done.value.dim() else fill(done.value, 0),
        extra=extra,
    )
