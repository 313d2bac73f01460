"""Join the parts of a completion that were sampled one after another, and shorten a completion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from mmrl.core.columns import extends, is_ragged, per_choice
from mmrl.core.types import Completion

VERSIONS = "choice_versions"
SUPPORT, GUIDES = "packed_support_ids", "packed_guides"


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


def truncate(done: Completion, length: int) -> Completion:
    """Return the first `length` choices of a completion; one that is cut ended by its length."""
    if len(done.action) <= length:
        return done
    return replace(_take_first(done, length), ended="length" if done.ended == "done" else done.ended)


def _take_first(done: Completion, length: int) -> Completion:
    """Return the first `length` choices.

    Ids of truncated sampling are cut by the choices that they belong to. The text of a guide, and columns that are
    matched with the tokens of the row, such as recorded experts, stay whole.

    Raises:
        ValueError: another column has a number of values that no choice accounts for.
    """
    columns = {name: column[:length] if per_choice(name) else column for name, column in done.extra.items()}
    for name in filter(is_ragged, done.extra):
        if name == SUPPORT and (sizes := done.extra.get("support_sizes")) is not None:
            columns[name] = done.extra[name][: int(sizes[:length].sum())]
        elif name != GUIDES and not extends(name):
            raise ValueError(
                f"a completion with the column {name!r} cannot be shortened to {length} choices, because its values do "
                "not say which choice they belong to; leave out the part that writes it"
            )
    return replace(
        done,
        action=done.action[:length],
        behavior_logprobs=done.behavior_logprobs[:length],
        action_mask=done.action_mask[:length],
        value=done.value if done.value is None or not done.value.dim() else done.value[:length],
        extra=columns,
    )
