"""DeepSearch: Monte Carlo tree search over text segments, in place of independent completions.

DeepSearch: Overcome the Bottleneck of Reinforcement Learning with Verifiable Rewards via Monte Carlo Tree Search, 2025,
arXiv:2509.25454.

- the tree: `SearchNode`; the backup of outcomes (equations 8 to 10): `back_up`
- selection of nodes over the whole tree: `frontier_score`
- the search (sections 3.1 to 3.3): `TreeSearch`
- advantages (equation 13): `CentredValues`
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from mmrl.annotators.base import Annotator
from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least
from mmrl.core.rng import derive_seed
from mmrl.core.types import Completion, Context, Episode, Prompt, Turn
from mmrl.ops.masked import last_inside, zero_outside
from mmrl.rollouts.base import Rollout, text_observation
from mmrl.rollouts.text.transcript import Transcript


@dataclass(eq=False)
class SearchNode:
    """Tree node with one segment of an answer. The root is the prompt, at depth -1: the first piece has depth 0."""

    script: Transcript  # everything up to and with this piece
    parent: SearchNode | None = None
    depth: int = -1
    value: float = 0.0
    visits: int = 0
    surprise: float = 0.0  # mean -logprob of the piece's choices
    children: list[SearchNode] = field(default_factory=list)
    closed: bool = False  # a leaf that ended, or a node that was expanded

    def path(self) -> list[SearchNode]:
        """From the first piece to this one."""
        above = [] if self.parent is None or self.parent.depth < 0 else self.parent.path()
        return [*above, self]


def back_up(leaf: SearchNode, outcome: float) -> None:
    """Back up an outcome, +1 or -1, along the path of a leaf; nodes near the leaf receive more.

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


def frontier_score(parent_value: float, depth: int, most: int) -> float:
    """0.4 tanh(Q_parent) + 0.01 sqrt(depth / most): which open node of the whole tree to go on from."""
    return 0.4 * math.tanh(parent_value) + 0.01 * math.sqrt(max(depth, 0) / most)


def choose_leaf(leaves: Sequence[SearchNode], outcomes: Sequence[float]) -> int:
    """Select one of several new leaves: a correct one if there is one, then the one with the lowest `surprise`."""
    return min(range(len(leaves)), key=lambda i: (-outcomes[i], leaves[i].surprise, i))


def nodes(root: SearchNode) -> list[SearchNode]:
    """All nodes of a tree, parents before children."""
    return [root, *(node for child in root.children for node in nodes(child))]


class TreeSearch(Rollout):
    """Tree search per prompt until the tree has `group_size` leaves or `expansions` expansions are done.

    An expansion samples `width` pieces of at most `tokens` tokens after one node. When some end, one leaf is kept and
    its outcome is backed up, right (+1) or not (-1), and the search goes on from the open node of the whole tree
    that promises most; while none ends, it goes deeper along the first child: children that are new have no value and
    no visit yet, so that an upper confidence bound is the same for all. An answer that is as deep as it may be and has
    not ended counts as wrong.

    Every kept leaf is a row. `values` are tanh(v) of each piece's node and the leaf's own outcome, `segment` its depth.
    `info["counts"]` says how trees came out: tree/solved, tree/every_leaf_failed, or tree/no_leaf, of which an episode
    stays that is an error. Leaves of failed requests are dropped.

    Source: Wu et al., "DeepSearch", 2025, arXiv:2509.25454, sections 3.1 to 3.3.

    Args:
        tokens: most of a piece.
        width: pieces of an expansion.
        expansions: most of a tree.
        right: least reward of an answer that is right.
    """

    def __init__(self, tokens: int = 4, width: int = 8, expansions: int = 32, right: float = 1.0):
        check_at_least(1, "rollout", tokens=tokens, width=width, expansions=expansions)
        self.tokens, self.width, self.expansions, self.right = tokens, width, expansions, right

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"values", "segment"})

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        trees = []
        for slot, prompt in prompts:
            root = SearchNode(Transcript(text_observation(prompt), slot))
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
    ) -> list[tuple[SearchNode, Episode]]:
        """Add the new nodes to the tree; return those that are leaves with their episodes."""
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
            child = SearchNode(script, parent, parent.depth + 1, surprise=surprise)
            parent.children.append(child)
            if piece.ended == "done" or child.depth + 1 >= most:
                child.closed = True
                row = script.completion(ctx.policy.decode(script.ids.tolist()), piece.ended)
                leaves.append((child, Episode(tree.prompt, tree.slot, len(tree.kept), [Turn(row)], ended=piece.ended)))
        return leaves

    def _go_on(self, tree: _Tree, leaves: Sequence[tuple[SearchNode, Episode]], most: int) -> None:
        """Select a leaf, back up its outcome, and choose the node to expand next."""
        assert tree.open is not None
        if leaves:
            outcomes = [self._outcome(episode) for _, episode in leaves]
            place = choose_leaf([node for node, _ in leaves], outcomes)
            node, episode = leaves[place]
            back_up(node, outcomes[place])
            tree.kept.append((node, episode))
        below = [child for child in tree.open.children if not child.closed]
        if below and not leaves:
            tree.open = below[0]
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
    """Search tree of one prompt: its leaves and the node to expand next."""

    slot: int
    prompt: Prompt
    root: SearchNode
    open: SearchNode | None  # to be expanded next
    kept: list[tuple[SearchNode, Episode]] = field(default_factory=list)
    failed: int = 0  # requests

    def episodes(self) -> list[Episode]:
        """Return the selected leaves as numbered episodes; an episode with an error if there is none."""
        if not self.kept:
            episode = Episode(self.prompt, self.slot, 0, ended="error", info={"counts": {"tree/no_leaf": 1}})
            episode.info["error"] = f"no answer ended in this tree; {self.failed} requests failed"
            return [episode]
        solved = any(node.value > 0 for node, _ in self.kept)
        out = []
        for sample_index, (leaf, episode) in enumerate(self.kept):
            episode.sample_index, episode.turns = (
                sample_index,
                [Turn(_attach_values(leaf, episode.turns[0].completion))],
            )
            out.append(episode)
        out[0].info["counts"] = {"tree/solved" if solved else "tree/every_leaf_failed": 1}
        return out


def _attach_values(leaf: SearchNode, row: Completion) -> Completion:
    """Add the final Q-value of each segment to the row."""
    values, segment = torch.zeros(len(row.action)), torch.zeros(len(row.action), dtype=torch.long)
    start = 0
    for node in leaf.path():
        piece = slice(start, len(node.script))
        values[piece] = node.value if node is leaf else math.tanh(node.value)
        segment[piece], start = node.depth, len(node.script)
    return replace(row, value=values, extra={**row.extra, "segment": segment})


@dataclass(frozen=True)
class CentredValues(Annotator):
    """DeepSearch advantage: A = values - mean over the group's rows of their last value.

    Source: Wu et al., "DeepSearch", 2025, arXiv:2509.25454, equation 13: no division by a standard deviation.
    """

    def reads(self) -> frozenset[str]:
        return frozenset({"values", "group", "action_mask"})

    def writes(self) -> frozenset[str]:
        return frozenset({"advantages"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        if batch["values"].dim() == 1:
            raise ValueError(
                "annotator centred_values needs a value of every choice, as rollout=tree writes them; these are of rows"
            )
        mask, values = batch["action_mask"], zero_outside(batch["values"], batch["action_mask"])
        last = last_inside(mask)
        final = values.gather(1, (last - 1).clamp(min=0)[:, None])[:, 0].double()
        _, group = batch["group"].unique(return_inverse=True)
        counted = (last > 0).double()
        sums = final.new_zeros(int(group.max()) + 1)
        mean = sums.index_add(0, group, final * counted) / sums.index_add(0, group, counted).clamp(min=1)
        out = (values.double() - mean[group][:, None]).to(values.dtype)
        return batch.with_columns(advantages=torch.where(mask, out, 0.0))
