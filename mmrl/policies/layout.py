"""How the rows of a batch are laid out for the network: which share a line, and which lines share a pass.

A line is what the network reads as one sequence: a prompt once, and after it the choices of one or more attempts at it.
A sheet is some lines in one forward pass, filled up to the longest. Attempts that share a line cost their prompt once,
but all pairs of tokens in it; sheets of similar lines save filling, but every pass has a price of its own. Which is
best is arithmetic over lengths, done here without tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

Line = tuple[int, ...]
"""Rows of the batch that share a prompt and a line."""

Sheet = list[Line]

MASK = 1 << 26  # most entries of one explicit attention mask: 64 MiB of booleans
OVERHEAD = {"cpu": 4e6, "cuda": 4e9}  # price of a call times hidden^2: measured on a CPU, estimated for others
TOKENS = {"cpu": 2048, "cuda": 1 << 16}  # a pass over several lines, of a network of any width
WRITTEN = 1 << 18  # numbers that a CPU's cache holds while a layer works on them
WORTH = 0.9  # share of the cost of plain lines from which on shared ones are taken


def most_tokens(hidden: int, device: torch.device) -> int:
    """Of a pass over several lines.

    What a layer writes for more of them leaves a CPU's cache before the next operation reads it: a quarter of a step
    over 9,000 tokens of a network of width 128. A narrower one writes less.
    """
    most = TOKENS.get(device.type, TOKENS["cuda"])
    return max(most, WRITTEN // hidden) if device.type == "cpu" else most


@dataclass(frozen=True)
class Lengths:
    """What a layout depends on, for N rows of U prompts."""

    prompt: np.ndarray  # [N] number of the row's prompt, 0..U-1
    before: np.ndarray  # [U] tokens of the prompt, at least 1
    choices: np.ndarray  # [N] tokens of the row's action, at least 1


@dataclass(frozen=True)
class Price:
    """What a pass costs, in units of one token going through the body of the network, forward and backward.

    Args:
        call: of the pass itself, whatever is in it.
        pair: of two tokens of a line, whether or not one attends to the other.
        head: of the logits of one token.
    """

    call: float
    pair: float
    head: float

    @staticmethod
    def of_model(config: Any, device: torch.device) -> Price:
        """From the sizes of a transformer with 12 hidden^2 weights a layer, as its text configuration names them.

        A token costs 24 hidden^2 operations a layer and a pair 4 hidden. Starting an operation takes as long for a
        small network as for a large one, so the price of a call falls with hidden^2.
        """
        hidden = config.hidden_size
        overhead = OVERHEAD.get(device.type, OVERHEAD["cuda"])
        return Price(
            overhead / hidden**2, 1 / (6 * hidden), config.vocab_size / (12 * hidden * config.num_hidden_layers)
        )

    def __call__(self, count: int | np.ndarray, length: int, width: int | np.ndarray) -> float | np.ndarray:
        """Of a pass over `count` lines filled up to `length` tokens, of which the last `width` are scored."""
        return self.call + count * (length * (1 + self.pair * length) + self.head * width)


def best_layout(
    lengths: Lengths, price: Price, shared: bool, one_pass: bool, most: int = TOKENS["cuda"]
) -> list[Sheet]:
    """The cheapest layout.

    Args:
        shared: whether attempts may share a line.
        one_pass: whether all rows must be in one sheet.
        most: tokens of a sheet of several lines, if it need not be the only one.
    """
    best = _cheapest(lengths, price, shared, one_pass)
    return best if one_pass else [part for sheet in best for part in _parts(sheet, lengths, most)]


def _parts(sheet: Sheet, lengths: Lengths, most: int) -> list[Sheet]:
    """The sheet in parts of about the same number of lines, none of several lines above `most` tokens."""
    length = max(size(line, lengths)[0] for line in sheet)
    count = -(-len(sheet) // max(most // length, 1))
    return [[sheet[i] for i in part] for part in np.array_split(np.arange(len(sheet)), count)]


def _cheapest(lengths: Lengths, price: Price, shared: bool, one_pass: bool) -> list[Sheet]:
    cost, best = _cut(_lines(lengths.prompt, 1), lengths, price, one_pass)
    if shared:
        cost *= WORTH
        most, largest = 2, int(np.bincount(lengths.prompt).max())
        while most < 2 * largest:
            other_cost, other = _cut(_lines(lengths.prompt, most), lengths, price, one_pass)
            if other_cost < cost:
                cost, best = other_cost, other
            most *= 2
    return best


def shares(sheet: Sequence[Line]) -> bool:
    """Whether some line of the sheet holds more than one attempt."""
    return any(len(line) > 1 for line in sheet)


def size(line: Line, lengths: Lengths) -> tuple[int, int]:
    """Tokens of a line, and how many of them are scored: the network need not read the last token of an attempt."""
    scored = int(lengths.choices[list(line)].sum())
    return int(lengths.before[lengths.prompt[line[0]]]) - 1 + scored, scored


def _lines(prompt: np.ndarray, most: int) -> list[Line]:
    """The rows by prompt, at most that many in a line."""
    order = prompt.argsort(kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(prompt[order])) + 1)
    return [tuple(part.tolist()) for group in groups for part in np.array_split(group, -(-len(group) // most))]


def _cut(lines: Sequence[Line], lengths: Lengths, price: Price, one_pass: bool) -> tuple[float, list[Sheet]]:
    """Lines in order of length, cut where it is cheapest: best[i] = min_j best[j] + price of lines j to i."""
    sizes = np.array([size(line, lengths) for line in lines])
    order = np.lexsort((sizes[:, 1], sizes[:, 0]))
    length, width = sizes[order].T
    masked = shares(lines)
    # a cut between equal lines saves nothing; only the size of a mask may ask for it
    ends = [*(np.flatnonzero(masked | (np.diff(length) != 0) | (np.diff(width) != 0)) + 1).tolist(), len(lines)]
    starts = np.array([0, *ends[:-1]])
    widest = np.maximum.reduceat(width, starts)
    best, came = np.zeros(len(ends) + 1), np.zeros(len(ends), dtype=int)
    for i, end in enumerate(ends):
        first = slice(0, 1 if one_pass else i + 1)
        count = end - starts[first]
        across = np.maximum.accumulate(widest[i::-1])[::-1][first]
        cost = best[first] + price(count, length[end - 1], across)
        if masked:
            cost = np.where(count * length[end - 1] ** 2 > MASK, np.inf, cost)
        came[i] = cost.argmin()
        best[i + 1] = cost[came[i]]
    sheets, i = [], len(ends)
    while i > 0:
        start = starts[came[i - 1]]
        sheets.append([lines[k] for k in order[start : ends[i - 1]]])
        i = int(came[i - 1])
    return float(best[-1]), sheets[::-1]
