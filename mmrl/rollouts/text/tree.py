"""Answers found by searching a tree of pieces, in place of sampling each from its beginning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from mmrl.rng import derive_seed
from mmrl.rollouts.base import Rollout, worded
from mmrl.rollouts.text.transcript import Transcript
from mmrl.rollouts.text.tree_nodes import Node, back_up, chosen, frontier_score, nodes, upper_bound
from mmrl.types import Completion, Context, Episode, Prompt, Turn


class TreeSearch(Rollout):
    """Grows a tree per prompt until it has as many leaves as a group has episodes, or has spent its expansions.

    An expansion samples `width` pieces of at most `tokens` tokens after one node. When some end, one leaf is kept and
    says up the tree whether it was right (+1) or not (-1), and the search goes on from the open node of the whole tree
    that promises most; while none ends, it goes deeper along the best child. An answer that is as deep as it may be and
    has not ended counts as wrong.

    Every kept leaf is a row. `values` are tanh(v) of each piece's node and the leaf's own outcome, `segment` its depth.
    `info["counts"]` says how trees came out: tree/solved, tree/every_leaf_failed, or tree/no_leaf, of which an episode
    stays that is an error. Leaves of failed requests are dropped.

    Source: Wu et al., "DeepSearch", 2025, arXiv:2509.25454, sections 3.1 to 3.3.

    Args:
        tokens: most of a piece.
        width: pieces of an expansion.
        expansions: most of a tree.
        exploration: c of the upper confidence bound.
        right: least reward of an answer that is right.
    """

    writes = frozenset({"values", "segment"})

    def __init__(
        self, tokens: int = 4, width: int = 8, expansions: int = 32, exploration: float = 2.0, right: float = 1.0
    ):
        for name, value in (("tokens", tokens), ("width", width), ("expansions", expansions)):
            if value < 1:
                raise ValueError(f"rollout.{name} must be at least 1, got {value}")
        self.tokens, self.width, self.expansions = tokens, width, expansions
        self.exploration, self.right = exploration, right

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        trees = []
        for slot, prompt in prompts:
            root = Node(Transcript(worded(prompt), slot))
            trees.append(_Tree(slot, prompt, root, root))
        most = math.ceil(ctx.sampling.max_tokens / self.tokens)
        for number in range(self.expansions):
            growing = [tree for tree in trees if tree.open is not None and len(tree.kept) < ctx.group_size]
            if not growing:
                break
            self._expand(growing, number, most, ctx)
            ctx.progress("tree", len(trees) - len(growing), len(trees))
        return [episode for tree in trees for episode in tree.episodes()]

    def _expand(self, trees: Sequence[_Tree], number: int, most: int, ctx: Context) -> None:
        """One expansion of every tree, in one batch."""
        requests = []
        for tree in trees:
            assert tree.open is not None
            for k in range(self.width):
                seed = derive_seed(ctx.seed, ctx.purpose, ctx.iteration, tree.slot, "tree", number, k)
                requests.append(tree.open.script.request(seed))
        done = ctx.engine.sample(requests, replace(ctx.sampling, max_tokens=self.tokens))
        fresh = [
            self._children(tree, done[i * self.width : (i + 1) * self.width], most, ctx) for i, tree in enumerate(trees)
        ]
        ctx.collector.score([episode for leaves in fresh for _, episode in leaves])
        for tree, leaves in zip(trees, fresh):
            self._go_on(tree, leaves, most)

    def _children(
        self, tree: _Tree, pieces: Sequence[Completion], most: int, ctx: Context
    ) -> list[tuple[Node, Episode]]:
        """The new nodes; those that are leaves with their episodes."""
        parent, leaves = tree.open, []
        assert parent is not None
        parent.closed = True
        for piece in pieces:
            if piece.ended == "error":
                tree.failed += 1
                continue
            script = parent.script.fork()
            script.write(piece)
            surprise = -float(piece.behavior_logprobs[piece.action_mask].mean())
            child = Node(script, parent, parent.depth + 1, surprise=surprise)
            parent.children.append(child)
            if piece.ended == "done" or child.depth + 1 >= most:
                child.closed = True
                row = script.completion(ctx.policy.decode(script.ids.tolist()), piece.ended)
                leaves.append((child, Episode(tree.prompt, tree.slot, len(tree.kept), [Turn(row)], ended=piece.ended)))
        return leaves

    def _go_on(self, tree: _Tree, leaves: Sequence[tuple[Node, Episode]], most: int) -> None:
        """Keep a leaf and tell the tree, and choose where to expand next."""
        assert tree.open is not None
        if leaves:
            outcomes = [self._outcome(episode) for _, episode in leaves]
            place = chosen([node for node, _ in leaves], outcomes)
            node, episode = leaves[place]
            back_up(node, outcomes[place])
            tree.kept.append((node, episode))
        below = [child for child in tree.open.children if not child.closed]
        if below and not leaves:
            tree.open = max(below, key=lambda node: upper_bound(node, self.exploration))
            return
        frontier = [node for node in nodes(tree.root) if not node.closed]
        # a tree that has no open node grows from its root again
        tree.open = max(
            frontier,
            key=lambda n: frontier_score(n.parent.value if n.parent else 0.0, n.depth, most),
            default=tree.root,
        )

    def _outcome(self, episode: Episode) -> float:
        return 1.0 if episode.ended == "done" and episode.reward >= self.right else -1.0


@dataclass(eq=False)
class _Tree:
    """One prompt's."""

    slot: int
    prompt: Prompt
    root: Node
    open: Node | None  # to be expanded next
    kept: list[tuple[Node, Episode]] = field(default_factory=list)
    failed: int = 0  # requests

    def episodes(self) -> list[Episode]:
        """The kept leaves as rows, numbered; an error where there is none."""
        if not self.kept:
            episode = Episode(self.prompt, self.slot, 0, ended="error", info={"counts": {"tree/no_leaf": 1}})
            episode.info["error"] = f"no answer ended in this tree; {self.failed} requests failed"
            return [episode]
        solved = any(node.value > 0 for node, _ in self.kept)
        out = []
        for sample_index, (leaf, episode) in enumerate(self.kept):
            episode.sample_index, episode.turns = sample_index, [Turn(_valued(leaf, episode.turns[0].completion))]
            out.append(episode)
        out[0].info["counts"] = {"tree/solved" if solved else "tree/every_leaf_failed": 1}
        return out


def _valued(leaf: Node, row: Completion) -> Completion:
    """The row with what each piece turned out to be worth when the search was over."""
    values, segment = torch.zeros(len(row.action)), torch.zeros(len(row.action), dtype=torch.long)
    start = 0
    for node in leaf.path():
        piece = slice(start, len(node.script))
        values[piece] = node.value if node is leaf else math.tanh(node.value)
        segment[piece], start = node.depth, len(node.script)
    return replace(row, value=values, extra={**row.extra, "segment": segment})
