"""Are two programs equal? A controller grows a tree of proposed programs node by node, and stops with a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces

from mmrl.core.errors import check_at_least
from sims.program_tree.expressions import draw_expression, mutate, read, rewrite, similarity, truth_table, write
from sims.program_tree.proposers import build_proposer

FEATURES = ("exists", "valid", "passes", "similarity", "granularity", "depth", "expanded", "last", "reached")
"""What is observed of each node, in this order; after all nodes come their parents' numbers, -1 for the root."""
EQUAL, DIFFERENT = 0, 1
"""Verdicts; they are the actions after those that expand a node."""


@dataclass
class TreeNode:
    """A program in the tree."""

    program: str
    parent: int
    depth: int
    valid: bool = True
    passes: bool = True  # has the truth table of the source
    similarity: float = 0.0  # to the target
    granularity: float = 0.0  # of the edit that led here: 1 - similarity to the parent
    expanded: bool = False


class ProgramTree(gymnasium.Env):
    """Decide whether a source and a target program compute the same.

    Action i < nodes expands node i: a proposer writes its children. Expanded nodes, nodes that a validator finds wrong
    or that have reached the target, and numbers without a node are masked. The two last actions stop with the verdict
    equal or different. Half of the pairs are equal: the target is rewritten from the source; in the others it is then
    changed so that its truth table differs.

    The reward is `metric_weight` times the growth of the largest similarity to the target among right nodes, minus
    `step_cost` for each expansion, and 1 for the right verdict, -1 for a wrong one.

    Scores: success (the verdict is right), reached (a right node is the target), nodes (their number).

    Args:
        nodes: most nodes of a tree; children that do not fit are left out.
        children: proposals for each expansion.
        operators: of a source.
        rewrites: between source and target.
        metric_weight: of the growth of the similarity.
        step_cost: of an expansion.
        order: nodes that may be expanded: "free"; "depth", children of the node that was expanded last, a chain of
            thought; "breadth", the oldest, a tree of thought.
        proposer: options of a proposer, or one itself (`sims.program_tree.proposers.build_proposer`).
        pair: source, target and whether they are equal, in place of drawn ones.
    """

    metadata = {"render_modes": [], "mmrl_infos": ["scores"]}

    def __init__(
        self,
        nodes: int = 24,
        children: int = 3,
        operators: int = 4,
        rewrites: int = 3,
        metric_weight: float = 0.5,
        step_cost: float = 0.02,
        order: Literal["free", "depth", "breadth"] = "free",
        proposer: Any = None,
        pair: tuple[str, str, bool] | None = None,
    ):
        check_at_least(1, "sim.kwargs", nodes=nodes, children=children, operators=operators, rewrites=rewrites)
        check_at_least(0, "sim.kwargs", metric_weight=metric_weight, step_cost=step_cost)
        if order not in ("free", "depth", "breadth"):
            raise ValueError(f"sim.kwargs.order must be free, depth or breadth, got {order!r}")
        self.size, self.children, self.operators, self.rewrites = nodes, children, operators, rewrites
        self.metric_weight, self.step_cost, self.order, self.pair = metric_weight, step_cost, order, pair
        self.proposer = build_proposer({} if proposer is None else proposer)
        self.action_space = spaces.Discrete(nodes + 2)
        width = nodes * (len(FEATURES) + 1)
        self.observation_space = spaces.Dict(
            {
                "state": spaces.Box(-1.0, float(nodes), (width,), np.float32),
                "action_mask": spaces.Box(0, 1, (nodes + 2,), np.int8),
            }
        )

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        super().reset(seed=seed)
        self.source, self.target, self.equal = self.pair or draw_pair(self.np_random, self.operators, self.rewrites)
        self.table = truth_table(read(self.source))
        self.tree = [TreeNode(self.source, -1, 0, similarity=similarity(self.source, self.target))]
        self.last = -1
        return self._observe(), {}

    def step(self, action: int) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        action = int(action)
        if not self.mask()[action]:
            raise ValueError(f"ProgramTree: action {action} is masked; expandable are {np.flatnonzero(self.mask())}")
        if action >= self.size:
            right = (action - self.size == EQUAL) == self.equal
            scores = {"success": float(right), "reached": float(self.best() == 1), "nodes": float(len(self.tree))}
            return self._observe(), 1.0 if right else -1.0, True, False, {"scores": scores}
        before = self.best()
        self._expand(action)
        return self._observe(), self.metric_weight * (self.best() - before) - self.step_cost, False, False, {}

    def best(self) -> float:
        """The largest similarity to the target among right nodes; 1 where it is reached."""
        return max(node.similarity for node in self.tree if node.passes)

    def mask(self) -> np.ndarray:
        """What can be done [nodes + 2] int8; verdicts always can."""
        mask = np.zeros(self.size + 2, np.int8)
        mask[self.size :] = 1
        if len(self.tree) == self.size:
            return mask
        open_nodes = [i for i, node in enumerate(self.tree) if not node.expanded and self._continues(node)]
        if self.order == "depth":
            open_nodes = [i for i in open_nodes if self.tree[i].parent == self.last]
        mask[open_nodes[:1] if self.order == "breadth" else open_nodes] = 1
        return mask

    def _continues(self, node: TreeNode) -> bool:
        return node.passes and node.program != self.target

    def _expand(self, number: int) -> None:
        """Add and validate the children of a node; programs that are in the tree already are left out."""
        parent = self.tree[number]
        parent.expanded, self.last = True, number
        for program in self.proposer.propose(parent.program, self.target, self.children, self.np_random):
            if len(self.tree) < self.size and all(program != node.program for node in self.tree):
                self.tree.append(self._validate(program, number))

    def _validate(self, program: str, parent: int) -> TreeNode:
        tree, above = read(program), self.tree[parent]
        passes = tree is not None and truth_table(tree) == self.table
        near, grain = similarity(program, self.target), 1 - similarity(program, above.program)
        return TreeNode(program, parent, above.depth + 1, tree is not None, passes, near, grain)

    def _observe(self) -> dict[str, np.ndarray]:
        features = np.zeros((self.size, len(FEATURES)), np.float32)
        parents = np.full(self.size, -1, np.float32)
        for i, node in enumerate(self.tree):
            reached = node.passes and node.program == self.target
            features[i] = (1, node.valid, node.passes, node.similarity, node.granularity, node.depth / self.size,
                           node.expanded, i == self.last, reached)  # fmt: skip
            parents[i] = node.parent
        return {"state": np.concatenate([features.reshape(-1), parents]), "action_mask": self.mask()}


def draw_pair(rng: np.random.Generator, operators: int, rewrites: int) -> tuple[str, str, bool]:
    """Draw source and target programs, and whether they are equal, with probability 1/2."""
    equal = bool(rng.random() < 0.5)
    while True:
        source = draw_expression(rng, operators)
        target = source
        for _ in range(rewrites):
            choices = rewrite(target)
            if not choices:
                break
            target = choices[int(rng.integers(len(choices)))]
        if not equal:
            target = mutate(target, rng)
        if target != source and (truth_table(source) == truth_table(target)) == equal:
            return write(source), write(target), equal
