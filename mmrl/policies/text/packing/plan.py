"""Packing: which completions share a packed sequence (prefix sharing), and which sequences share a forward pass.

A packed sequence is what the network reads as one sequence: a prompt once, and after it the choices of one or more
completions of it, whose common first choices are read once too. A packed batch is the sequences of one forward pass,
padded to the longest. Completions that share a sequence cost their prompt once, but all pairs of tokens in it; batches
of similar lengths save padding, but every forward pass has a cost of its own. `plan_packing` finds the cheapest packing
from lengths alone, without tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import torch

PackedSequence = tuple[int, ...]
"""PackedSequence: rows of the batch that are one sequence; neighbours with the same prompt share it."""

PackedBatch = list[PackedSequence]
"""PackedBatch: the packed sequences of one forward pass."""

MAX_MASK = 1 << 26  # maximum entries of one explicit attention mask: 64 MiB of booleans
CALL_OVERHEAD = {"cpu": 4e6, "cuda": 4e9}  # cost of a call times hidden^2: measured on a CPU, estimated for others
MAX_TOKENS = {"cpu": 2048, "cuda": 1 << 16}  # maximum tokens of a pass; larger for narrow networks on a CPU
CPU_CACHE = 1 << 18  # elements of a layer's activations that fit into a CPU's cache
MAX_GROUP = 64  # completions of a sequence
SHARING_THRESHOLD = 0.9  # prefixes are shared where the cost is below this fraction of the cost without sharing


def call_tokens(hidden: int, device: torch.device) -> float:
    """Return the fixed cost of a forward pass in tokens through a network of this width."""
    return CALL_OVERHEAD.get(device.type, CALL_OVERHEAD["cuda"]) / hidden**2


def max_packed_tokens(hidden: int, device: torch.device) -> int:
    """Return the maximum number of tokens of a forward pass over several sequences.

    The activations of more tokens do not fit into a CPU's cache, which makes a step slower: by a quarter with 9,000
    tokens at width 128. Narrower networks fit more tokens.
    """
    most = MAX_TOKENS.get(device.type, MAX_TOKENS["cuda"])
    return max(most, CPU_CACHE // hidden) if device.type == "cpu" else most


@dataclass(frozen=True)
class Lengths:
    """Lengths of N rows of U prompts, which determine the cost of a packing."""

    prompt: np.ndarray  # [N] number of the row's prompt, 0..U-1
    prompt_lengths: np.ndarray  # [U] tokens of the prompt, at least 1
    choices: np.ndarray  # [N] tokens of the row's action, at least 1
    text: np.ndarray | None = None  # [N, T] the actions, if completions may share common first choices

    def common(self, sequence: PackedSequence) -> int:
        """Return the number of first choices that all completions of a sequence share."""
        if self.text is None or len(sequence) < 2:
            return 0
        rows = list(sequence)
        tokens = self.text[rows, : int(self.choices[rows].min())]
        same = (tokens == tokens[0]).all(0)
        return len(same) if same.all() else int(same.argmin())


@dataclass(frozen=True)
class PackingCost:
    """Cost model of a forward pass, in units of one token through the network's body, forward and backward.

    Args:
        call: fixed cost of a pass.
        pair: cost of a pair of tokens in a sequence, also if masked.
        head: cost of the logits of one token.
    """

    call: float
    pair: float
    head: float

    @staticmethod
    def of_model(config: Any, device: torch.device) -> PackingCost:
        """Estimate the costs of a transformer with 12 hidden^2 weights per layer, from its text configuration.

        A token costs 24 hidden^2 operations a layer and a pair 4 hidden. Starting an operation takes as long for a
        small network as for a large one, so the cost of a call falls with hidden^2.
        """
        hidden = config.hidden_size
        return PackingCost(
            call_tokens(hidden, device), 1 / (6 * hidden), config.vocab_size / (12 * hidden * config.num_hidden_layers)
        )

    def __call__(self, count: int | np.ndarray, length: int | np.ndarray, width: int | np.ndarray) -> Any:
        """Compute the cost of `count` sequences padded to `length` tokens, the last `width` of them scored."""
        return self.call + count * (length * (1 + self.pair * length) + self.head * width)


def plan_packing(
    lengths: Lengths,
    cost_model: PackingCost,
    shared: bool,
    one_pass: bool,
    max_tokens: int = MAX_TOKENS["cuda"],
    across: bool = False,
    padded: bool = True,
) -> list[PackedBatch]:
    """Find the cheapest packing.

    Args:
        shared: whether completions may share a sequence.
        one_pass: whether all rows must be in one forward pass.
        max_tokens: of a packed batch of several sequences, unless `one_pass`.
        across: whether completions of different prompts may share a sequence too.
        padded: whether sequences of different lengths may share a pass.
    """
    best = _plan(lengths, cost_model, shared, one_pass, across) if padded else plan_equal_lengths(lengths, one_pass)
    return best if one_pass else [part for packed in best for part in _split_batch(packed, lengths, max_tokens)]


def _split_batch(packed: PackedBatch, lengths: Lengths, max_tokens: int) -> list[PackedBatch]:
    """Split a packed batch into parts of similar numbers of sequences; a part of several has at most `max_tokens`."""
    length = max(sequence_size(sequence, lengths)[0] for sequence in packed)
    count = -(-len(packed) // max(max_tokens // length, 1))
    return [[packed[i] for i in part] for part in np.array_split(np.arange(len(packed)), count)]


def _plan(lengths: Lengths, cost_model: PackingCost, shared: bool, one_pass: bool, across: bool) -> list[PackedBatch]:
    cost, best = _split_by_length(
        [(row,) for row in lengths.prompt.argsort(kind="stable").tolist()], lengths, cost_model, one_pass
    )
    if shared and int(np.bincount(lengths.prompt).max()) > 1:
        shared_cost, grouped = _split_by_length(prefix_groups(lengths, cost_model), lengths, cost_model, one_pass)
        if shared_cost < SHARING_THRESHOLD * cost:
            cost, best = shared_cost, grouped
    if shared and across:
        filled_cost, filled = _split_by_length(fill_sequences(lengths, cost_model), lengths, cost_model, one_pass)
        if filled_cost < cost:
            return filled
    return best


def plan_equal_lengths(lengths: Lengths, one_pass: bool = False) -> list[PackedBatch]:
    """Put the rows of each length into a batch, so that none is padded.

    Raises:
        ValueError: all rows must be in one pass, and they have different lengths.
    """
    sizes = [sequence_size((row,), lengths)[0] for row in range(len(lengths.prompt))]
    batches = [[(row,) for row in range(len(sizes)) if sizes[row] == size] for size in sorted(set(sizes))]
    if one_pass and len(batches) > 1:
        raise ValueError(
            "policy: rows of this model stand beside rows of the same length alone, and sharded weights need all rows "
            "of a minibatch in one pass; use strategy=ddp, or one row in a micro-batch"
        )
    return batches


def fill_sequences(lengths: Lengths, cost_model: PackingCost) -> list[PackedSequence]:
    """Fill sequences as long as the longest prefix group with shorter ones of other prompts, first fit decreasing."""
    groups = prefix_groups(lengths, cost_model)
    sizes = [sequence_size(group, lengths)[0] for group in groups]
    room, filled = list[int](), list[list[PackedSequence]]()
    for number in np.argsort([-size for size in sizes], kind="stable").tolist():
        place = next((i for i, space in enumerate(room) if space >= sizes[number]), None)
        if place is None:
            place = len(room)
            room.append(max(sizes))
            filled.append([])
        room[place] -= sizes[number]
        filled[place].append(groups[number])
    neighbours = (sorted(each, key=lambda group: lengths.prompt[group[0]]) for each in filled)
    return [tuple(row for group in each for row in group) for each in neighbours]


def split_by_prompt(sequence: PackedSequence, lengths: Lengths) -> list[PackedSequence]:
    """Split a sequence into the rows of each of its prompts."""
    return [tuple(rows) for _, rows in groupby(sequence, key=lambda row: lengths.prompt[row])]


def shares_prefix(packed: Sequence[PackedSequence]) -> bool:
    """Whether a sequence has several completions."""
    return any(len(sequence) > 1 for sequence in packed)


def sequence_size(sequence: PackedSequence, lengths: Lengths) -> tuple[int, int]:
    """Return the numbers of tokens and of scored tokens of a sequence; last tokens of completions are not read."""
    length = width = 0
    for rows in split_by_prompt(sequence, lengths):
        scored = int(lengths.choices[list(rows)].sum()) - (len(rows) - 1) * lengths.common(rows)
        length, width = length + int(lengths.prompt_lengths[lengths.prompt[rows[0]]]) - 1 + scored, width + scored
    return length, width


def prefix_groups(lengths: Lengths, cost_model: PackingCost) -> list[PackedSequence]:
    """Find prefix groups: the cheapest packed sequences of the completions of one prompt, without padding and calls.

    Completions are sorted by prompt and tokens, so those with a common prefix are adjacent and a group is a slice:
    best[j] = min_w best[j - w] + cost of the w completions before j.
    """
    order = _sort_by_tokens(lengths)
    prompt, choices = lengths.prompt[order], lengths.choices[order]
    most, rows = min(int(np.bincount(prompt).max()), MAX_GROUP), len(order)
    alike = _count_shared(lengths, order)  # with the completion before
    ends = np.full((rows + 1, most), np.inf)  # cost of the w + 1 completions that end before j
    # [N - w] common prefix and number of choices of w + 1 adjacent completions
    common = scored = choices
    for w in range(most):
        count = rows - w
        if w:
            common, scored = np.minimum(common[:count], alike[w:]), scored[:count] + choices[w:]
        width = scored - w * common
        cost = cost_model(1, lengths.prompt_lengths[prompt[:count]] - 1 + width, width) - cost_model.call
        ends[w + 1 :, w] = np.where(prompt[:count] == prompt[w:], cost, np.inf)
    # dynamic program over the end j of the last group
    best, came = np.full(rows + 1 + most, np.inf), np.zeros(rows + 1, dtype=int)
    best[most] = 0.0  # no completion; earlier entries cannot be reached
    for j in range(1, rows + 1):
        whole = best[j : j + most][::-1] + ends[j]
        came[j] = whole.argmin()
        best[j + most] = whole[came[j]]
    # follow the best cuts back from the end
    sequences, j = list[PackedSequence](), rows
    while j > 0:
        first = j - came[j] - 1
        sequences.append(tuple(order[first:j].tolist()))
        j = first
    return sequences[::-1]


def _sort_by_tokens(lengths: Lengths) -> np.ndarray:
    """Sort the rows by prompt, and those of a prompt by their tokens."""
    if lengths.text is None:
        return lengths.prompt.argsort(kind="stable")
    inside = np.arange(lengths.text.shape[1]) < lengths.choices[:, None]
    keys = np.where(inside, lengths.text + 1, 0).astype(">u4")  # big-endian numbers have the order of their bytes
    return np.array(sorted(range(len(keys)), key=lambda row: (lengths.prompt[row], keys[row].tobytes())))


def _count_shared(lengths: Lengths, order: np.ndarray) -> np.ndarray:
    """Count the first choices [N] that each row has in common with the previous row; undefined for the first."""
    shared = np.zeros(len(order), dtype=int)
    if lengths.text is not None and len(order) > 1:
        text, choices = lengths.text[order], lengths.choices[order]
        apart = np.concatenate([text[1:] != text[:-1], np.ones((len(order) - 1, 1), dtype=bool)], 1)
        shared[1:] = np.minimum(apart.argmax(1), np.minimum(choices[1:], choices[:-1]))
    return shared


def _split_by_length(
    sequences: Sequence[PackedSequence], lengths: Lengths, cost_model: PackingCost, one_pass: bool
) -> tuple[float, list[PackedBatch]]:
    """Cut sequences sorted by length into the cheapest batches: best[i] = min_j best[j] + cost of j to i."""
    sizes = np.array([sequence_size(sequence, lengths) for sequence in sequences])
    order = np.lexsort((sizes[:, 1], sizes[:, 0]))
    length, width = sizes[order].T
    masked = shares_prefix(sequences)
    # a cut between equal sequences saves nothing, and is needed only to limit the size of a mask
    ends = [*(np.flatnonzero(masked | (np.diff(length) != 0) | (np.diff(width) != 0)) + 1).tolist(), len(sequences)]
    starts = np.array([0, *ends[:-1]])
    widest = np.maximum.reduceat(width, starts)
    # dynamic program over the end i of the last batch, whose sequences are padded to its longest
    best, came = np.zeros(len(ends) + 1), np.zeros(len(ends), dtype=int)
    for i, end in enumerate(ends):
        first = slice(0, 1 if one_pass else i + 1)
        count = end - starts[first]
        across = np.maximum.accumulate(widest[i::-1])[::-1][first]
        cost = best[first] + cost_model(count, length[end - 1], across)
        if masked:
            cost = np.where(count * length[end - 1] ** 2 > MAX_MASK, np.inf, cost)
        came[i] = cost.argmin()
        best[i + 1] = cost[came[i]]
    # follow the best cuts back from the end
    batches, i = [], len(ends)
    while i > 0:
        start = starts[came[i - 1]]
        batches.append([sequences[k] for k in order[start : ends[i - 1]]])
        i = int(came[i - 1])
    return float(best[-1]), batches[::-1]
