"""Transcript: one row of several completions and the forced tokens between them; ids are not tokenised again."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mmrl.core.batch import pad_stack
from mmrl.core.columns import extends, is_ragged, pad_value
from mmrl.core.types import Completion, Ended, Observation, Request


class Transcript:
    """Token ids after one observation: those that the policy chose and those that it read.

    Args:
        raw: the observation that the row starts from.
        prompt_id: the same for the transcripts of one prompt, which is encoded once; None for a prompt of its own.
    """

    def __init__(self, raw: Mapping[str, Any], prompt_id: Hashable | None = None):
        self.raw, self.prompt_id = raw, prompt_id
        self.turns = 0  # completions so far
        self._parts: list[Completion] = []
        self._ids = torch.zeros(0, dtype=torch.long)

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> Tensor:
        """[T] everything after the observation."""
        return self._ids

    @property
    def observation(self) -> Observation:
        """The encoded observation that the row starts from; known once the policy has written."""
        return self._parts[0].observation

    def request(self, seed: int) -> Request:
        """For the completion that goes on from here."""
        return Request(self.raw, seed, self._ids if len(self._ids) else None, self.prompt_id)

    def write(self, done: Completion) -> None:
        """Append a completion of the policy."""
        self._add(done)
        self.turns += 1

    def read(self, ids: Tensor) -> None:
        """Append forced tokens, such as a tool's result, which are not trained on; a completion comes before them."""
        if not self._parts:
            raise ValueError("a row begins with what the policy wrote; what comes before it belongs to the prompt")
        if not len(ids):
            return
        last, width = self._parts[-1], len(ids)
        forced = {name: _fill_forced(name, value, width) for name, value in last.extra.items() if value.dim()}
        self._add(
            replace(
                last,
                action=ids,
                behavior_logprobs=torch.zeros(width),
                action_mask=torch.zeros(width, dtype=torch.bool),
                value=None if last.value is None or not last.value.dim() else torch.zeros(width),
                extra={**last.extra, **forced},
            )
        )

    def _add(self, part: Completion) -> None:
        self._parts.append(part)
        self._ids = torch.cat([self._ids, part.action])

    def fork(self) -> Transcript:
        """Return an independent copy."""
        other = Transcript(self.raw, self.prompt_id)
        other.turns, other._parts, other._ids = self.turns, list(self._parts), self._ids
        return other

    def completion(self, output: Any, ended: Ended) -> Completion:
        """Return the row of everything so far."""
        first, parts = self._parts[0], self._parts
        values = [part.value for part in parts if part.value is not None]
        whole = len(values) == len(parts)
        extra = {
            name: _join(name, [part.extra[name] for part in parts]) if value.dim() else value
            for name, value in first.extra.items()
        }
        return Completion(
            observation=self.observation,
            prompt_id=self.prompt_id,
            action=self._ids,
            behavior_logprobs=torch.cat([part.behavior_logprobs for part in parts]),
            action_mask=torch.cat([part.action_mask for part in parts]),
            output=output,
            ended=ended,
            value=(torch.cat(values) if values[0].dim() else values[0]) if whole and values else None,
            extra=extra,
            policy_version=first.policy_version,
        )


def _fill_forced(name: str, column: Tensor, width: int) -> Tensor:
    """Entries [width, ...] of a column per choice where nothing was chosen; of a ragged column there is nothing."""
    return column[:0] if is_ragged(name) else column.new_full((width, *column.shape[1:]), pad_value(name))


def _join(name: str, parts: list[Tensor]) -> Tensor:
    """Pieces [t, ...] of a column per choice, one after the other; kept sets differ in size and are filled up.

    Of pieces that run along all tokens from the row's first, each gives what those before it lack.
    """
    if extends(name):
        starts = [max((len(part) for part in parts[:i]), default=0) for i in range(len(parts))]
        return torch.cat([part[start:] for part, start in zip(parts, starts)])
    if parts[0].dim() < 2:
        return torch.cat(parts)
    wide = pad_stack(parts, -1)
    return torch.cat([row[: len(part)] for row, part in zip(wide, parts)])
