"""How the rows of a batch are laid out for the network: which share a line, and which lines share a pass.

A line is what the network reads as one sequence: a prompt once, and after it the choices of one or more attempts at it,
of which the first ones are read once too where they are the same.
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
FAMILY = 64  # most attempts of a line
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
    text: np.ndarray | None = None  # [N, T] the actions, where attempts that begin alike may be read alike

    def common(self, line: Line) -> int:
        """How many first choices all attempts of a line share."""
        if self.text is None or len(line) < 2:
            return 0
        rows = list(line)
        texts = self.text[rows, : int(self.choices[rows].min())]
        same = (texts == texts[0]).all(0)
        return len(same) if same.all() else int(same.argmin())


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

    def __call__(self, count: int | np.ndarray, length: int | np.ndarray, width: int | np.ndarray) -> Any:
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
    cost, best = _cut([(row,) for row in lengths.prompt.argsort(kind="stable").tolist()], lengths, price, one_pass)
    if shared and int(np.bincount(lengths.prompt).max()) > 1:
        shared_cost, lines = _cut(families(lengths, price), lengths, price, one_pass)
        if shared_cost < WORTH * cost:
            return lines
    return best


def shares(sheet: Sequence[Line]) -> bool:
    """Whether some line of the sheet holds more than one attempt."""
    return any(len(line) > 1 for line in sheet)


def size(line: Line, lengths: Lengths) -> tuple[int, int]:
    """Tokens of a line, and how many of them are scored: the network need not read the last token of an attempt."""
    scored = int(lengths.choices[list(line)].sum()) - (len(line) - 1) * lengths.common(line)
    return int(lengths.before[lengths.prompt[line[0]]]) - 1 + scored, scored


def families(lengths: Lengths, price: Price) -> list[Line]:
    """The lines of attempts at one prompt that cost least, filling and calls aside.

    Attempts that begin alike stand side by side in the order of their texts, so a family is a stretch of that order:
    best[j] = min_w best[j - w] + price of the w attempts before j.
    """
    order = _alike(lengths)
    prompt, choices = lengths.prompt[order], lengths.choices[order]
    most, rows = min(int(np.bincount(prompt).max()), FAMILY), len(order)
    alike = _shared(lengths, order)  # with the attempt before
    ends = np.full((rows + 1, most), np.inf)  # price of the w + 1 attempts that end before j
    common = scored = choices
    for w in range(most):
        count = rows - w
        if w:
            common, scored = np.minimum(common[:count], alike[w:]), scored[:count] + choices[w:]
        width = scored - w * common
        cost = price(1, lengths.before[prompt[:count]] - 1 + width, width) - price.call
        ends[w + 1 :, w] = np.where(prompt[:count] == prompt[w:], cost, np.inf)
    best, came = np.full(rows + 1 + most, np.inf), np.zeros(rows + 1, dtype=int)
    best[most] = 0.0  # of no attempt; what stands before it is out of reach
    for j in range(1, rows + 1):
        whole = best[j : j + most][::-1] + ends[j]
        came[j] = whole.argmin()
        best[j + most] = whole[came[j]]
    lines, j = list[Line](), rows
    while j > 0:
        first = j - came[j] - 1
        lines.append(tuple(order[first:j].tolist()))
        j = first
    return lines[::-1]


def _alike(lengths: Lengths) -> np.ndarray:
    """The rows by prompt, and those of a prompt by their texts."""
    if lengths.text is None:
        return lengths.prompt.argsort(kind="stable")
    inside = np.arange(lengths.text.shape[1]) < lengths.choices[:, None]
    keys = np.where(inside, lengths.text + 1, 0).astype(">u4")  # of big-endian numbers the bytes are ordered alike
    return np.array(sorted(range(len(keys)), key=lambda row: (lengths.prompt[row], keys[row].tobytes())))


def _shared(lengths: Lengths, order: np.ndarray) -> np.ndarray:
    """[N] first choices that each row of an order shares with the one before it; those of the first mean nothing."""
    shared = np.zeros(len(order), dtype=int)
    if lengths.text is not None and len(order) > 1:
        text, choices = lengths.text[order], lengths.choices[order]
        apart = np.concatenate([text[1:] != text[:-1], np.ones((len(order) - 1, 1), dtype=bool)], 1)
        shared[1:] = np.minimum(apart.argmax(1), np.minimum(choices[1:], choices[:-1]))
    return shared


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
