"""Random dependency graphs of arithmetic operations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SYMBOLS = "+-*"
NAMES = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Node:
    """A quantity: a number, or an operation on two operands that are numbers or names of other quantities."""

    name: str
    operands: tuple[int | str, ...]
    symbol: str = ""

    @property
    def parents(self) -> frozenset[str]:
        return frozenset(operand for operand in self.operands if isinstance(operand, str))

    def __str__(self) -> str:
        return f"{self.name}={self.symbol.join(map(str, self.operands))}"


@dataclass(frozen=True)
class Graph:
    """Quantities in an order in which they can be computed, the asked one among them."""

    nodes: tuple[Node, ...]
    asked: str

    def values(self, modulus: int) -> dict[str, int]:
        """Return the value of each quantity, modulo `modulus`."""
        values: dict[str, int] = {}
        for node in self.nodes:
            numbers = [values[operand] if isinstance(operand, str) else operand for operand in node.operands]
            values[node.name] = compute(node.symbol, numbers) % modulus
        return values

    def ancestors(self) -> tuple[Node, ...]:
        """Return the quantities that the asked one depends on, itself included, in the order of `nodes`."""
        names = {self.asked}
        for node in reversed(self.nodes):
            if node.name in names:
                names |= node.parents
        return tuple(node for node in self.nodes if node.name in names)


def compute(symbol: str, numbers: list[int]) -> int:
    """Apply an operation to its two operands; a number alone is itself."""
    if not symbol:
        return numbers[0]
    first, second = numbers
    return {"+": first + second, "-": first - second, "*": first * second}[symbol]


def draw_graph(rng: np.random.Generator, depth: int, distractors: int, operations: str, modulus: int) -> Graph:
    """Draw a graph of `depth` quantities that the last one needs, and of further ones that it does not need.

    Every quantity before the asked one is used by a later one: the number of unused quantities is kept small enough for
    those that follow to use them up, two each at most.
    """
    names = [NAMES[i] for i in rng.permutation(26)[: depth + distractors]]
    nodes: list[Node] = []
    unused: list[str] = []
    for i, name in enumerate(names[:depth]):
        remaining = depth - i  # quantities to draw, this one included
        if not unused or (remaining > 1 and len(unused) < remaining and rng.random() < 0.25):
            node = Node(name, (int(rng.integers(modulus)),))
        else:
            first = unused[int(rng.integers(len(unused)))]
            others = [other for other in unused if other != first]
            if len(unused) > remaining or (others and rng.random() < 0.4):
                second: int | str = others[int(rng.integers(len(others)))]
            else:
                second = _draw_operand(rng, [n.name for n in nodes if n.name not in unused], modulus)
            node = _draw_operation(rng, name, first, second, operations)
        unused = [*(other for other in unused if other not in node.parents), name]
        nodes.append(node)
    for name in names[depth:]:
        operands = [node.name for node in nodes]
        first = operands[int(rng.integers(len(operands)))]
        nodes.append(_draw_operation(rng, name, first, _draw_operand(rng, operands, modulus), operations))
    return Graph(tuple(nodes), names[depth - 1])


def _draw_operand(rng: np.random.Generator, known: list[str], modulus: int) -> int | str:
    if known and rng.random() < 0.5:
        return known[int(rng.integers(len(known)))]
    return int(rng.integers(modulus))


def _draw_operation(rng: np.random.Generator, name: str, first: int | str, second: int | str, operations: str) -> Node:
    operands = (first, second) if rng.random() < 0.5 else (second, first)
    return Node(name, operands, operations[int(rng.integers(len(operations)))])
