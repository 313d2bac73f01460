"""Pack the tokens of a batch: build the network's inputs for a packing, with each prompt once.

Sequence b of a packed batch is: padding, the prompt without its last token, and then for each of its completions the
prompt's last token and all choices but the last. Tokens that predict choices which all completions have in common are
read once, before those of each completion. So a position predicts one choice, the positions of the choices are the last
ones of the sequence, and no position is read that predicts nothing. Completions do not attend to each other. Of several
prompts in a sequence all come first, then the completions of each; a token attends to its own prompt only.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mmrl.core.batch import Batch, Ragged
from mmrl.ops.logprob import logprob_entropy
from mmrl.ops.support import support_logprob_entropy
from mmrl.policies.text.guided.allowed_ids import AllowedIds
from mmrl.policies.text.packing.plan import (
    Lengths,
    PackedBatch,
    PackedSequence,
    sequence_size,
    shares_prefix,
    split_by_prompt,
)
from mmrl.policies.text.routing.loads import RowParts, build_row_parts


@dataclass(frozen=True)
class PackedInputs:
    """Inputs of one forward pass over B packed sequences of L tokens, the last W of which are scored."""

    tensors: dict[str, Any]  # by the names of the model's arguments
    width: int
    logit_index: Tensor  # [M] position among the B * W scored tokens; common choices share one
    choice_index: Tensor  # [M] position among the N * T choices of the batch
    experts: Tensor | None = None  # [B * L, layers, k] that routers choose, -1 where they choose by themselves
    row_parts: RowParts | None = None  # which tokens are those of a row, for the loads of experts


@dataclass(frozen=True)
class _Part:
    """Neighbouring tokens of a sequence: of a prompt, of common first choices, or of a completion."""

    tokens: np.ndarray  # their indices among those of all prompts and choices
    segment: int  # number of the prompt in the sequence
    completion: int  # 0 for a prompt and common choices
    depth: int  # position of the first in a sequence of its completion alone


class BatchTokens:
    """Tokens of a batch for packing: prompts [U, P] padded on the left, and choices [N, T].

    Args:
        observation: the columns of the U prompts: per token [U, P], the others ragged.
        positions: rotary positions [U, P], or [3, U, P] in three dimensions.
        emitted: ids [N, T].
        lengths: of prompts and choices.
        padding: id of padding tokens.
        experts: [U * P + N * T, layers, k] recorded for prompts and for the tokens that predict choices, or None.
        loads: whether packed inputs say which tokens are those of a row.
    """

    def __init__(
        self,
        observation: Mapping[str, Any],
        positions: Tensor,
        emitted: Tensor,
        lengths: Lengths,
        padding: int,
        experts: Tensor | None = None,
        loads: bool = False,
    ):
        self.lengths, self.device, self.loads = lengths, emitted.device, loads
        self.experts = None if experts is None else F.pad(experts, (0, 0, 0, 0, 0, 1), value=-1)
        self.prompts, self.prompt_width = observation["input_ids"].shape
        self.rows, self.choices = emitted.shape
        self.last = observation["input_ids"][:, -1]  # [U] last token of each prompt
        self.ragged = {name: column for name, column in observation.items() if isinstance(column, Ragged)}
        owner = torch.from_numpy(lengths.prompt).to(self.device)
        self.columns = {
            name: _flatten(column, column[owner, -1:], column.new_zeros(self.rows, self.choices - 1))
            for name, column in observation.items()
            if not isinstance(column, Ragged) and name not in ("input_ids", "attention_mask")
        }
        self.columns["input_ids"] = _flatten(
            observation["input_ids"], observation["input_ids"][owner, -1:], emitted[:, : self.choices - 1], padding
        )
        # choices follow the largest position of the prompt, in all dimensions
        furthest = positions.amax(-1) if positions.dim() == 2 else positions.amax((0, -1))
        following = furthest[owner][:, None] + torch.arange(1, self.choices, device=self.device)
        following = following.expand(*positions.shape[:-2], *following.shape)
        self.columns["position_ids"] = _flatten(positions, positions[..., owner, -1:], following)

    def has_images(self) -> bool:
        """Whether a prompt has inputs that are not per token, such as images."""
        return bool(self.with_images().any())

    def with_images(self) -> np.ndarray:
        """[U] bool: which prompts have inputs that are not per token."""
        mask = np.zeros(self.prompts, dtype=bool)
        for column in self.ragged.values():
            mask |= column.lengths.cpu().numpy() > 0
        return mask

    def pack(self, packed: PackedBatch, mask: Any, multiple: int = 1) -> PackedInputs:
        """Build the network's inputs for one packed batch.

        Args:
            packed: rows of the sequences.
            mask: builds the attention mask of shared prompts.
            multiple: of which the numbers of tokens and of scored tokens of a sequence are one. Tokens are added at the
                end for that, to which no other attends, so that sequences of one length still need no mask.
        """
        # B sequences of at most L tokens, of which at most `width` predict a choice, `added` at the end included
        sizes = [sequence_size(sequence, self.lengths) for sequence in packed]
        length, width = (max(column) for column in zip(*sizes))
        added = -length % multiple
        end = length
        length, width = length + added, -(-(width + added) // multiple) * multiple
        source = np.full((len(packed), length), -1)  # of each token among those of all prompts and choices
        # [B, L] prompt segment and completion (-1 in padding) and depth of each token, for the mask
        owner, completion, depth = np.full_like(source, -1), np.full_like(source, -1), np.zeros_like(source)
        numbering, row_parts, first = np.zeros_like(source), [], 1  # of parts, 0 for padding
        logit_indices, choice_indices, owners = [], [], []
        for b, sequence in enumerate(packed):
            segments = split_by_prompt(sequence, self.lengths)
            parts, scored = self._arrange(segments)
            counts = [len(part.tokens) for part in parts]
            # padded on the left, so that the scored tokens are the last `width` of a sequence
            tail = slice(end - sum(counts), end)
            source[b, tail] = np.concatenate([part.tokens for part in parts])
            owner[b, tail] = np.repeat([part.segment for part in parts], counts)
            completion[b, tail] = np.repeat([part.completion for part in parts], counts)
            depth[b, tail] = np.concatenate([np.arange(len(part.tokens)) + part.depth for part in parts])
            numbering[b, tail] = np.repeat(np.arange(first, first + len(parts)), counts)
            row_parts += [(row, first + parts[n[1]].segment, first + n[0], first + n[1]) for row, n in scored]
            first += len(parts)
            # positions of a row's logits among B * width, and of its choices among N * T
            starts = b * width + width - added - sum(counts) + np.cumsum([0, *counts])
            for row, numbers in scored:
                where = [np.arange(starts[number], starts[number + 1]) for number in numbers]
                logit_indices.append(np.concatenate(where))
                choice_indices.append(row * self.choices + np.arange(sum(map(len, where))))
            owners += [self.lengths.prompt[rows[0]] for rows in segments]
        owner[:, end:], completion[:, end:] = 0, completion.max() + 1  # a completion of its own
        # gather the columns of all prompts and choices to [..., B, L]; index -1 reads the padding at their end
        indices = torch.from_numpy(source).to(self.device)
        inputs = {name: column[..., indices] for name, column in self.columns.items()}
        if shares_prefix(packed):
            parts = (completion, depth, owner)
            inputs["attention_mask"] = mask(*(torch.from_numpy(part).to(self.device) for part in parts))
        else:
            inputs["attention_mask"] = torch.from_numpy((completion >= 0).astype(np.int64)).to(self.device)
        # images once for each prompt segment, in the order of the sequences
        for name, column in self.ragged.items():
            values = column[torch.tensor(owners)].values
            if len(values):
                inputs[name] = values
        logit_index, choice_index = (
            torch.from_numpy(np.concatenate(parts)).to(self.device) for parts in (logit_indices, choice_indices)
        )
        experts = None if self.experts is None else self.experts[indices.flatten()]
        loads = build_row_parts(numbering, row_parts, self.device) if self.loads else None
        return PackedInputs(inputs, width, logit_index, choice_index, experts, loads)

    def _arrange(self, segments: Sequence[PackedSequence]) -> tuple[list[_Part], list[tuple[int, list[int]]]]:
        """Return the parts of a sequence in order, and for each row the numbers of those that predict its choices."""
        parts = [_Part(self._prompt_indices(rows[0]), number, 0, 0) for number, rows in enumerate(segments)]
        scored = []
        for number, rows in enumerate(segments):
            common, depth = self.lengths.common(rows), len(parts[number].tokens)
            shared = len(parts)
            parts.append(_Part(self._completion_indices(rows[0])[:common], number, 0, depth))
            for place, row in enumerate(rows, 1):
                scored.append((row, [shared, len(parts)]))
                parts.append(_Part(self._completion_indices(row)[common:], number, place, depth + common))
        return parts, scored

    def without_common_choices(self) -> BatchTokens:
        """Return the same tokens without common first choices: completions share only the prompt."""
        other = copy.copy(self)
        other.lengths = replace(self.lengths, text=None)
        return other

    def _prompt_indices(self, row: int) -> np.ndarray:
        """Return the indices of the tokens of the row's prompt, without the last."""
        number = self.lengths.prompt[row]
        end = (number + 1) * self.prompt_width - 1
        return np.arange(end - self.lengths.prompt_lengths[number] + 1, end)

    def _completion_indices(self, row: int) -> np.ndarray:
        start = self.prompts * self.prompt_width + row * self.choices
        return np.arange(start, start + self.lengths.choices[row])


def _flatten(prompts: Tensor, last: Tensor, following: Tensor, padding: int = 0) -> Tensor:
    """Concatenate a column over prompt tokens and over tokens that predict choices, with padding as the last entry."""
    predicting = torch.cat([last, following], -1)
    return F.pad(torch.cat([prompts.flatten(-2), predicting.flatten(-2)], -1), (0, 1), value=padding)


def packed_mask(completion: Tensor, depth: Tensor, owner: Tensor | None, window: int | None = None) -> Tensor:
    """Attention mask of packed sequences [B, 1, L, L] bool: a token attends to its prompt and completion up to itself.

    Args:
        completion: [B, L] 0 for tokens of the prompt and of common first choices, 1, 2, ... for those of a completion,
            -1 for padding.
        depth: [B, L] position of each token in a sequence of its completion alone.
        owner: [B, L] number of each token's prompt in its sequence; None where every sequence has one prompt.
        window: of sliding attention in tokens, or None; distances are those in a sequence of one completion.
    """
    order = torch.arange(completion.shape[1], device=completion.device)
    asks, offers = completion[:, :, None], completion[:, None, :]
    mask = ((offers == 0) | (offers == asks)) & (offers >= 0) & (order[:, None] >= order)
    if owner is not None:
        mask &= owner[:, :, None] == owner[:, None, :]
    if window is not None:
        mask &= depth[:, :, None] - depth[:, None, :] < window
    return (mask | (order[:, None] == order))[:, None]  # a softmax over nothing is NaN


def annotate_mask(mask: Tensor, completion: Tensor, owner: Tensor) -> Tensor:
    """Annotate a mask with its structure, the attributes `head` and `causal`.

    Every sequence has at least `head` tokens before its first completion; `causal` tells whether each of them attends
    to all earlier ones, as without padding.

    Args:
        mask: of `packed_mask`.
        completion, owner: [B, L] as for `packed_mask`.
    """
    mask.head = int((completion < 1).all(0).cumprod(0).sum())  # type: ignore[attr-defined]
    mask.causal = bool((owner == 0).all())  # type: ignore[attr-defined]
    return mask


def score_tokens(
    logits: Tensor, action: Tensor, batch: Batch, slot: Tensor, forced: Tensor, allowed: AllowedIds | None = None
) -> list[Tensor]:
    """Compute log-probabilities [M] and entropies [M] of M choices, in nats, at the temperatures of their rows.

    Where sampling was truncated, which the columns packed_support_ids and support_sizes state, or guided, a third entry
    [M] is the log-probabilities over the whole vocabulary.

    Args:
        logits: [M, V].
        action: [M] ids.
        batch: with the temperatures.
        slot: [M] of the choices among the N * T of the batch.
        forced: [M] bool, choices whose log-probabilities are 0.
        allowed: ids that guided decoding allowed; None for all.
    """
    temperature = batch["temperature"][slot // batch["action"].shape[1]]
    full, entropy = (part[:, 0] for part in logprob_entropy(logits[:, None], action[:, None], temperature))
    if not score_names(batch):
        return [full.masked_fill(forced, 0.0), entropy]
    logprobs = full
    if "packed_support_ids" in batch:
        ids, sizes = batch["packed_support_ids"].values, batch["support_sizes"].flatten()
        starts, scored = sizes.cumsum(0) - sizes, batch.score_mask.flatten()[slot]
        logprobs, entropy = support_logprob_entropy(logits, action, temperature, ids, starts[slot], sizes[slot], scored)
    if allowed is not None:
        logprobs, entropy = allowed.renormalise((logprobs, entropy), logits, action, temperature, slot)
    return [logprobs.masked_fill(forced, 0.0), entropy, full.masked_fill(forced, 0.0)]


def score_names(batch: Batch) -> list[str]:
    """Name what `score_tokens` returns after log-probabilities and entropies."""
    return ["full_logprobs"] if "packed_support_ids" in batch or "packed_guides" in batch else []


def scored_states(hidden_states: Sequence[Tensor], layers: Sequence[int], width: int) -> Tensor:
    """Stack the states [B * width, L, D] of these layers at the scored tokens, from the model's [B, length, D] each."""
    return torch.stack([hidden_states[layer][:, -width:] for layer in layers], dim=2).flatten(0, 1)
