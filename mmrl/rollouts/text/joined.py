"""Join the parts of a completion that were sampled one after another, each with weights of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from mmrl.core.columns import is_ragged, per_choice
from mmrl.core.types import Completion

VERSIONS = "choice_versions"


def with_versions(done: Completion) -> Completion:
    """Return a completion with the column `choice_versions` [T]: the version of the weights that drew each choice."""
    versions = torch.full((len(done.action),), done.policy_version)
    return replace(done, extra={**done.extra, VERSIONS: versions})


def join(first: Completion, more: Completion) -> Completion:
    """Return a completion of T + S choices: log-probs and versions stay those of the part that drew the choice.

    The context, its id and `policy_version` are those of the first part, the end and the columns per row, such as the
    temperature, those of the last one.

    Args:
        first: T choices, with `choice_versions`.
        more: S choices that continue them, with `choice_versions`.
    """

    def both(part: Tensor | None, following: Tensor | None) -> Tensor | None:
        per_row = part is None or following is None or not part.dim()
        return part if per_row else torch.cat([part, following])  # type: ignore[list-item]

    columns = {
        name: torch.cat([first.extra[name], column]) if per_choice(name) or is_ragged(name) else column
        for name, column in more.extra.items()
    }
    return replace(
        first,
        action=torch.cat([first.action, more.action]),
        behavior_logprobs=torch.cat([first.behavior_logprobs, more.behavior_logprobs]),
        action_mask=torch.cat([first.action_mask, more.action_mask]),
        value=both(first.value, more.value),
        ended=more.ended,
        extra=columns,
    )


def end_at_stop(done: Completion, start: int, stops: Callable[[Tensor], Tensor], reach: int) -> Completion:
    """End a completion where a stop string is complete that began before choice `start`, which no part saw whole.

    Args:
        done: joined, T choices.
        start: number of choices before the last part.
        stops: which rows [N] bool have ended, given their ids [N, t].
        reach: most choices of the last part with which such a string can end.
    """
    for length in range(start + 1, min(start + reach, len(done.action)) + 1):
        if bool(stops(done.action[None, :length])[0]):
            return replace(_take_first(done, length), ended="done")
    return done


def _take_first(done: Completion, length: int) -> Completion:
    """Return the first `length` choices."""
    sizes = done.extra.get("support_sizes")
    columns = {name: column[:length] if per_choice(name) else column for name, column in done.extra.items()}
    if sizes is not None:  # ids of truncated sampling, choice after choice
        columns["packed_support_ids"] = done.extra["packed_support_ids"][: int(sizes[:length].sum())]
    return replace(
        done,
        action=done.action[:length],
        behavior_logprobs=done.behavior_logprobs[:length],
        action_mask=done.action_mask[:length],
        value=done.value if done.value is None or not done.value.dim() else done.value[:length],
        extra=columns,
    )
