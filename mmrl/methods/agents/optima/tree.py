"""Optima: trees of dialogues, whose sibling messages are preference pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from mmrl.core.errors import check_at_least, check_fraction
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Episode, Prompt, Turn
from mmrl.methods.agents.optima.dialogue import VIEW, Dialogue, Message, Talk
from mmrl.transforms.best_worst import label_preference


def edit_distance(first: str, second: str) -> int:
    """Count the characters to insert, remove or replace that make one text the other (Levenshtein)."""
    costs = list(range(len(second) + 1))  # of no character of the first text
    for i, left in enumerate(first, 1):
        diagonal, costs[0] = costs[0], i
        for j, right in enumerate(second, 1):
            diagonal, costs[j] = costs[j], min(diagonal + (left != right), costs[j] + 1, costs[j - 1] + 1)
    return costs[-1]


def is_similar(text: str, other: str, threshold: float = 0.25) -> bool:
    """Whether the edit distance of two texts is below a share of the longer one, whose length counts one more."""
    return edit_distance(text, other) < threshold * (max(len(text), len(other)) + 1)


@dataclass(eq=False)
class MessageNode:
    """State of a dialogue after a message; the root is the problem."""

    message: Message | None = None
    parent: MessageNode | None = None
    children: list[MessageNode] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)  # of the dialogues through the node

    @property
    def text(self) -> str:
        return "" if self.message is None else self.message.text

    @property
    def value(self) -> float:
        """Mean reward of the dialogues through the node; 0 without one."""
        return sum(self.rewards) / len(self.rewards) if self.rewards else 0.0

    def path(self) -> list[MessageNode]:
        """Nodes from the root to this one."""
        return [*([] if self.parent is None else self.parent.path()), self]

    def messages(self) -> list[Message]:
        """Messages up to this node."""
        return [node.message for node in self.path() if node.message is not None]

    def nodes(self) -> Iterator[MessageNode]:
        """All nodes from here on, parents before children."""
        yield self
        for child in self.children:
            yield from child.nodes()

    def add(self, message: Message, distance: float = 0.1) -> MessageNode:
        """Return the child of a message: one whose text is nearly the same, or a new one."""
        for child in self.children:
            if edit_distance(child.text, message.text) < distance * (len(message.text) + 1):
                return child
        self.children.append(MessageNode(message, self))
        return self.children[-1]


def choose_node(
    root: MessageNode, explored: Sequence[MessageNode], draw: float, similarity: float = 0.25, count: int = 10
) -> MessageNode:
    """Choose the node to expand: by the softmax of the values of the best `count` candidates.

    Candidates are the root and nodes with grandchildren, without those that were expanded or whose message is similar
    to one that was. Without a candidate it is the root. Source: Optima, 2024, section 2.4 (iDPO), arXiv:2410.08115;
    released code: train/monte_carlo_deploy.py.

    Args:
        root: of the tree.
        explored: nodes that were expanded.
        draw: uniform in [0, 1).
        similarity: share of the edit distance below which two messages are similar.
        count: candidates of highest value.
    """
    texts = [node.text for node in explored if node.parent is not None]
    candidates = [
        node
        for node in root.nodes()
        if (node is root or any(child.children for child in node.children))
        and node not in explored
        and (node is root or not any(is_similar(node.text, text, similarity) for text in texts))
    ]
    if not candidates:
        return root
    best = sorted(candidates, key=lambda node: -node.value)[:count]
    weights = np.cumsum([math.exp(node.value - best[0].value) for node in best])
    return best[min(int(np.searchsorted(weights, draw * weights[-1], side="right")), len(best) - 1)]


def select_pairs(
    root: MessageNode, min_value: float = 0.5, min_gap: float = 0.2, share: float = 0.5
) -> list[tuple[MessageNode, MessageNode]]:
    """Pairs (chosen, rejected) of sibling messages: the best and the worst child of a node.

    The chosen value exceeds `min_value`, and the rejected one by more than `min_gap`. Of the pairs of a tree the best
    share by chosen value is returned, at least one.
    """
    pairs = []
    for node in root.nodes():
        if len(node.children) >= 2:
            best = max(node.children, key=lambda child: child.value)
            worst = min(node.children, key=lambda child: child.value)
            if best.value > min_value and best.value - worst.value > min_gap:
                pairs.append((best, worst))
    pairs.sort(key=lambda pair: -pair[0].value)
    return pairs[: max(1, int(share * len(pairs) + 1e-9))]


@dataclass(eq=False)
class DialogueSearch:
    """The tree of one problem, and the dialogues that it was grown by."""

    slot: int
    prompt: Prompt
    root: MessageNode = field(default_factory=MessageNode)
    explored: list[MessageNode] = field(default_factory=list)
    ends: list[MessageNode] = field(default_factory=list)
    episodes: list[Episode] = field(default_factory=list)

    def back_up(self) -> None:
        """Write the rewards of all dialogues into the nodes on their paths."""
        for node in self.root.nodes():
            node.rewards = []
        for end, episode in zip(self.ends, self.episodes):
            if episode.ended != "error":
                for node in end.path():
                    node.rewards.append(episode.reward)


class DialogueTree(Dialogue):
    """Rollout of pairs of messages from a tree of dialogues; every pair is a group of two rows.

    In each of `expansions` steps a node is chosen (`choose_node`), and `width` dialogues go on from it to their ends.
    Their messages become nodes (`MessageNode.add`), and a node's value is the mean reward of the dialogues through it.
    Then `select_pairs`. The reward compares a dialogue with all others of its tree so far. A tree without a pair gives
    one row without a preference. `info["value"]` of a row is the value of its message.
    Source: Optima, 2024, section 2.4 (iDPO), arXiv:2410.08115; released code: train/monte_carlo_deploy.py.

    Args:
        view: as in `Dialogue`.
        separator: as in `Dialogue`.
        answer_pattern: as in `Dialogue`.
        max_messages: as in `Dialogue`.
        expansions: of a tree.
        width: dialogues of an expansion.
        merged: share of the edit distance below which a message is an earlier sibling.
        similarity: of `choose_node`.
        candidates: of `choose_node`.
        min_value: of `select_pairs`.
        min_gap: of `select_pairs`.
        share: of `select_pairs`.
    """

    def __init__(
        self,
        view: str = VIEW,
        separator: str = "\n",
        answer_pattern: str = r"<A>(.*?)</A>",
        max_messages: int = 10,
        expansions: int = 8,
        width: int = 3,
        merged: float = 0.1,
        similarity: float = 0.25,
        candidates: int = 10,
        min_value: float = 0.5,
        min_gap: float = 0.2,
        share: float = 0.5,
    ):
        super().__init__(view, separator, answer_pattern, max_messages)
        check_at_least(1, "rollout", expansions=expansions, width=width, candidates=candidates)
        check_at_least(0, "rollout", min_gap=min_gap)
        check_fraction("rollout", merged=merged, similarity=similarity, share=share)
        self.expansions, self.width, self.merged = expansions, width, merged
        self.similarity, self.candidates = similarity, candidates
        self.min_value, self.min_gap, self.share = min_value, min_gap, share

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"preference"})

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        trees = [DialogueSearch(slot, prompt) for slot, prompt in prompts]
        for step in range(self.expansions):
            grown = []
            for tree in trees:
                draw = derive_rng("optima tree", ctx.seed, ctx.purpose, ctx.iteration, tree.slot, step).random()
                node = choose_node(tree.root, tree.explored, draw, self.similarity, self.candidates)
                tree.explored.append(node)
                grown += [(tree, node, self._begin(tree, node, step * self.width + k)) for k in range(self.width)]
            self.play([talk for _, _, talk in grown], ctx)
            for tree, node, talk in grown:
                end = node
                for message in talk.messages[len(node.messages()) :]:
                    end = end.add(message, self.merged)
                tree.ends.append(end)
                tree.episodes.append(self.finish(talk))
            ctx.collector.score([episode for tree in trees for episode in tree.episodes])
            for tree in trees:
                tree.back_up()
        return [episode for tree in trees for episode in self._list_rows(tree)]

    def _begin(self, tree: DialogueSearch, node: MessageNode, number: int) -> Talk:
        answer = self.read_answer(node.text)  # a later message that states it again ends the dialogue
        return Talk(tree.slot, tree.prompt, number, node.messages(), answer)

    def _list_rows(self, tree: DialogueSearch) -> list[Episode]:
        pairs = select_pairs(tree.root, self.min_value, self.min_gap, self.share)
        first = tree.slot * self.expansions * self.width  # a tree branches less often than it has dialogues
        out = []
        for number, pair in enumerate(pairs):
            out += [self._row(tree, node, first + number, i, sign) for i, (node, sign) in enumerate(zip(pair, (1, -1)))]
        if not out:
            out = [self._row(tree, tree.root.children[0], first, 0, 0)]
        finished = [episode for episode in tree.episodes if episode.ended != "error"]
        if not finished:
            error = {"error": "no dialogue of the tree could be played", "counts": {"tree/failed": 1}}
            return [Episode(tree.prompt, first, 0, ended="error", info=error)]
        agreed = sum(episode.info["counts"].get("dialogue/agreed", 0) for episode in finished)
        out[0].info["counts"] = {
            "tree/pairs": len(pairs), "dialogue/agreed": agreed, "dialogue/open": len(finished) - agreed,
        }  # fmt: skip
        return out

    def _row(self, tree: DialogueSearch, node: MessageNode, group: int, index: int, sign: int) -> Episode:
        """The row of a message."""
        assert node.message is not None
        episode = Episode(tree.prompt, group, index, [Turn(node.message.completion)], info={"value": node.value})
        return label_preference(episode, sign)
