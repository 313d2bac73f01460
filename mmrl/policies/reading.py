"""The tokens of a batch, each prompt once, and the network's inputs made of them for any layout.

Line b of a sheet is: filling, the prompt without its last token, and then for each of its attempts the prompt's last
token and all choices but the last. Of attempts that begin with the same choices, the tokens that predict these are
read once, before what each has for itself. So a place predicts one choice, the places of the choices are the last ones
of the line, and nothing is read that predicts nothing. Attempts do not see each other.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mmrl.batch import Ragged
from mmrl.policies.layout import Lengths, Sheet, shares, size


@dataclass(frozen=True)
class Page:
    """The inputs of one forward pass of B lines of L tokens, the last W of which are scored."""

    inputs: dict[str, Any]
    width: int
    place: Tensor  # [M] of each choice's scored token among the B * W last ones; choices that are read once share one
    slot: Tensor  # [M] of the choices among the N * T of the batch


class Reading:
    """What a batch holds for the network: prompts [U, P] padded on the left, and choices [N, T].

    Args:
        observation: the columns of the U prompts: per token [U, P], the others ragged.
        positions: rotary positions [U, P], or [3, U, P] in three dimensions.
        emitted: ids [N, T].
        lengths: of prompts and choices.
        filling: id that stands where a line holds nothing.
    """

    def __init__(
        self, observation: Mapping[str, Any], positions: Tensor, emitted: Tensor, lengths: Lengths, filling: int
    ):
        self.lengths, self.device = lengths, emitted.device
        self.prompts, self.before = observation["input_ids"].shape
        self.rows, self.choices = emitted.shape
        self.last = observation["input_ids"][:, -1]  # [U] last token of each prompt
        self.ragged = {name: column for name, column in observation.items() if isinstance(column, Ragged)}
        of = torch.from_numpy(lengths.prompt).to(self.device)
        self.columns = {
            name: _flat(column, column[of, -1:], column.new_zeros(self.rows, self.choices - 1))
            for name, column in observation.items()
            if not isinstance(column, Ragged) and name not in ("input_ids", "attention_mask")
        }
        self.columns["input_ids"] = _flat(
            observation["input_ids"], observation["input_ids"][of, -1:], emitted[:, : self.choices - 1], filling
        )
        # choices follow the furthest position of the prompt, in all dimensions
        furthest = positions.amax(-1) if positions.dim() == 2 else positions.amax((0, -1))
        following = furthest[of][:, None] + torch.arange(1, self.choices, device=self.device)
        following = following.expand(*positions.shape[:-2], *following.shape)
        self.columns["position_ids"] = _flat(positions, positions[..., of, -1:], following)

    def pictured(self) -> bool:
        """Whether some prompt brings inputs that do not run along its tokens."""
        return any(bool(column.lengths.any()) for column in self.ragged.values())

    def page(self, sheet: Sheet, mask: Any) -> Page:
        """One sheet as inputs; `mask` makes the attention mask of lines that hold several attempts."""
        sizes = [size(line, self.lengths) for line in sheet]
        length, width = (max(column) for column in zip(*sizes))
        source = np.full((len(sheet), length), -1)  # of each token among those of all prompts and choices
        attempt, depth = np.full_like(source, -1), np.zeros_like(source)
        places, slots = [], []
        for b, line in enumerate(sheet):
            common = self.lengths.common(line)
            first, tails = self._attempt(line[0])[:common], [self._attempt(row)[common:] for row in line]
            head = np.concatenate([self._prompt(line[0]), first])
            own = [head, *tails]
            counts = [len(part) for part in own]
            tail = slice(length - sum(counts), None)
            source[b, tail] = np.concatenate(own)
            attempt[b, tail] = np.repeat(np.arange(len(own)), counts)
            depth[b, tail] = np.concatenate([np.arange(n) + (counts[0] if i else 0) for i, n in enumerate(counts)])
            ends = length - sum(counts) + np.cumsum(counts)
            for row, start, count in zip(line, ends[:-1], counts[1:]):
                where = [np.arange(ends[0] - common, ends[0]), np.arange(start, start + count)]
                places.append(np.concatenate(where) + b * width - (length - width))
                slots.append(row * self.choices + np.arange(common + count))
        taken = torch.from_numpy(source).to(self.device)
        inputs = {name: column[..., taken] for name, column in self.columns.items()}
        if shares(sheet):
            inputs["attention_mask"] = mask(*(torch.from_numpy(part).to(self.device) for part in (attempt, depth)))
        else:
            inputs["attention_mask"] = torch.from_numpy((source >= 0).astype(np.int64)).to(self.device)
        pictures = torch.tensor([self.lengths.prompt[line[0]] for line in sheet])
        for name, column in self.ragged.items():
            values = column[pictures].values
            if len(values):
                inputs[name] = values
        place, slot = (torch.from_numpy(np.concatenate(parts)).to(self.device) for parts in (places, slots))
        return Page(inputs, width, place, slot)

    def apart(self) -> Reading:
        """The same, of which attempts share the prompt alone."""
        other = copy.copy(self)
        other.lengths = replace(self.lengths, text=None)
        return other

    def _prompt(self, row: int) -> np.ndarray:
        """Where the tokens of the row's prompt stand, without the last."""
        number = self.lengths.prompt[row]
        end = (number + 1) * self.before - 1
        return np.arange(end - self.lengths.before[number] + 1, end)

    def _attempt(self, row: int) -> np.ndarray:
        start = self.prompts * self.before + row * self.choices
        return np.arange(start, start + self.lengths.choices[row])


def _flat(prompts: Tensor, last: Tensor, following: Tensor, filling: int = 0) -> Tensor:
    """[..., U * P + N * T + 1]: a column over prompts, then over what predicts the choices; at -1 the filling."""
    predicting = torch.cat([last, following], -1)
    return F.pad(torch.cat([prompts.flatten(-2), predicting.flatten(-2)], -1), (0, 1), value=filling)


def visible(attempt: Tensor, depth: Tensor, window: int | None = None) -> Tensor:
    """Which tokens [B, 1, L, L] bool each token attends to: itself, the prompt before it and its own attempt before it.

    Args:
        attempt: [B, L] 0 for tokens of the prompt and of what all attempts begin with, 1, 2, ... for those of an
            attempt, -1 for filling.
        depth: [B, L] how many tokens stand before it in a line of its attempt alone.
        window: reach of sliding attention in tokens, or None. In lines of one attempt it counts what stands between.
    """
    order = torch.arange(attempt.shape[1], device=attempt.device)
    asks, offers = attempt[:, :, None], attempt[:, None, :]
    seen = ((offers == 0) | (offers == asks)) & (offers >= 0) & (order[:, None] >= order)
    if window is not None:
        seen &= depth[:, :, None] - depth[:, None, :] < window
    return (seen | (order[:, None] == order))[:, None]  # filling sees itself: a softmax over nothing is not a number


def headed(mask: Tensor, attempt: Tensor) -> Tensor:
    """The mask, told where its structure lies: `head` tokens of every line stand before the first attempt in any of
    them, and whether they are `causal`, each seeing all before it, as they do without filling.

    Args:
        mask: as `visible` makes it.
        attempt: [B, L] as there.
    """
    mask.head = int((attempt < 1).all(0).cumprod(0).sum())  # type: ignore[attr-defined]
    mask.causal = bool((attempt >= 0).all())  # type: ignore[attr-defined]
    return mask
