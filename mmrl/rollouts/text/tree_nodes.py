"""A tree of pieces of text: which node to go on from, and what a leaf says of the nodes above it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from mmrl.rollouts.text.transcript import Transcript


@dataclass(eq=False)
class Node:
    """One piece of an answer. The root is the prompt, at depth -1: the first piece has depth 0."""

    script: Transcript  # everything up to and with this piece
    parent: Node | None = None
    depth: int = -1
    value: float = 0.0
    visits: int = 0
    surprise: float = 0.0  # mean -logprob of the piece's choices
    children: list[Node] = field(default_factory=list)
    closed: bool = False  # a leaf that ended, or a node that was expanded

    def path(self) -> list[Node]:
        """From the first piece to this one."""
        above = [] if self.parent is None or self.parent.depth < 0 else self.parent.path()
        return [*above, self]


def back_up(leaf: Node, outcome: float) -> None:
    """Tell the nodes of the path how it ended, +1 or -1: those near the leaf have more of it.

    The leaf is worth the outcome. A node of depth d gets w outcome, w = max((d + 1) / (leaf depth + 1), 0.1): added
    where signs agree, in place of a negative value where the outcome is positive, and not where it is negative and the
    value positive: a node from which an answer was found stays good. Source: DeepSearch, 2025, equations 8 to 10.
    """
    path = leaf.path()
    for node in path:
        node.visits += 1
        share = max((node.depth + 1) / len(path), 0.1) * outcome
        if node is leaf:
            node.value = outcome
        elif node.value < 0 < outcome:
            node.value = share
        elif not node.value > 0 > outcome:
            node.value += share


def upper_bound(node: Node, exploration: float) -> float:
    """q + c sqrt(ln N_parent / N): good so far, or hardly tried."""
    above = max(node.parent.visits if node.parent else 1, 1)
    return node.value + exploration * math.sqrt(math.log(above) / max(node.visits, 1))


def frontier_score(parent_value: float, depth: int, most: int) -> float:
    """0.4 tanh(Q_parent) + 0.01 sqrt(depth / most): which open node of the whole tree to go on from."""
    return 0.4 * math.tanh(parent_value) + 0.01 * math.sqrt(max(depth, 0) / most)


def chosen(leaves: Sequence[Node], outcomes: Sequence[float]) -> int:
    """Which of several new leaves is kept: a right one first, then the one that surprised the policy least."""
    return min(range(len(leaves)), key=lambda i: (-outcomes[i], leaves[i].surprise, i))


def nodes(root: Node) -> list[Node]:
    """The whole tree, parents first."""
    return [root, *(node for child in root.children for node in nodes(child))]
