"""RLM Blueprint (x1): a tree search that is guided by the policy's values, and PPO on the tree's advantages.

Reasoning Language Models: A Blueprint, 2025, arXiv:2501.11223.

- selection and backup of the search: `select_scores`, `back_up_value`, `ValueGuidedSearch`
- the answers of a tree as rows, with advantages from Q before and after each step: `TreeAdvantage`
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.annotators.base import Annotator
from mmrl.core.batch import Batch
from mmrl.core.errors import check_fraction
from mmrl.core.types import Context, Episode, Turn
from mmrl.ops.masked import zero_outside
from mmrl.rollouts.trees.node import StepNode
from mmrl.rollouts.trees.search import StepSearch, StepTree, step_columns


def select_scores(
    values: Sequence[float],  # Q of the children
    visits: Sequence[int],
    parent_visits: int,
    bounds: tuple[float, float] = (-1.0, 1.0),
    c1: float = 1.25,
    c2: float = 19652.0,
) -> list[float]:
    """(Q - low) / (high - low) + sqrt(N - 1) / (1 + n) (c1 + ln((N - 1 + c2 + 1) / c2)) of each child.

    bounds: lowest and highest Q of the tree. N counts the parent's own visit, without which there is no exploration.
    Source: released code of the paper, x1/strategy/mcts.py.
    """
    low, high = bounds
    others = parent_visits - 1
    factor = math.sqrt(others) * (c1 + math.log((others + c2 + 1) / c2))
    return [(q - low) / (high - low) + factor / (1 + n) for q, n in zip(values, visits)]


def back_up_value(value: float, children: Sequence[tuple[int, float]], gamma: float, rate: float = 1.0) -> float:
    """(1 - rate) Q + rate sum_c n_c gamma Q_c / sum_c n_c, of the children; Q where none was visited."""
    total = sum(visits for visits, _ in children)
    if not total:
        return value
    return (1 - rate) * value + rate * sum(n * gamma * q for n, q in children) / total


class ValueGuidedSearch(StepSearch):
    """Tree search whose finished answers are rows, at most `data.group_size` of each tree, by their visits.

    A new node's Q is its estimate; a visited node's is the mean of its children's, by visits and discounted. The
    columns are `segment`, the number of each token's step, `returns`, Q before it, which the value head learns, and
    `values`, Q after it. A tree without a finished answer is an error. Source: Reasoning Language Models: A Blueprint,
    2025, section 5 and appendix C, arXiv:2501.11223.

    Args:
        iterations: as in `StepSearch`.
        width: as in `StepSearch`.
        depth: as in `StepSearch`.
        split: as in `StepSearch`.
        simulations: as in `StepSearch`.
        mix: as in `StepSearch`.
        right: as in `StepSearch`.
        gamma: discount factor per step.
        rate: of the backup.
        c1: exploration.
        c2: visits from which on exploration grows.
    """

    estimates_first = True

    def __init__(
        self,
        iterations: int = 16,
        width: int = 2,
        depth: int = 6,
        split: str = "\n",
        simulations: int = 0,
        mix: float = 0.5,
        right: float = 1.0,
        gamma: float = 0.96,
        rate: float = 1.0,
        c1: float = 1.25,
        c2: float = 19652.0,
    ):
        super().__init__(iterations, width, depth, split, simulations, mix, right)
        check_fraction("rollout", gamma=gamma, rate=rate)
        self.gamma, self.rate, self.c1, self.c2 = gamma, rate, c1, c2

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"returns", "segment", "values"})

    def choose_child(self, tree: StepTree, node: StepNode) -> StepNode:
        # Q of all nodes bound it, and rewards do; 0 stands for a value that is not known
        known_values = [other.value for other in tree.root.nodes() if other.value]
        bounds = min([-1.0, *known_values]), max([1.0, *known_values])
        values, visits = [c.value for c in node.children], [c.visits for c in node.children]
        scores = select_scores(values, visits, node.visits, bounds, self.c1, self.c2)
        return node.children[scores.index(max(scores))]

    def back_up(self, tree: StepTree, leaf: StepNode) -> None:
        leaf.visits += 1
        for node in reversed(leaf.path()[:-1]):
            node.visits += 1
            node.value = back_up_value(node.value, [(c.visits, c.value) for c in node.children], self.gamma, self.rate)

    def list_episodes(self, tree: StepTree, ctx: Context) -> list[Episode]:
        leaves = [node for node in tree.root.nodes() if node.answer is not None]
        if not leaves:
            error = {"error": f"no answer was finished in {self.iterations} iterations", "counts": {"tree/no_leaf": 1}}
            return [Episode(tree.prompt, tree.slot, 0, ended="error", info=error)]
        leaves = sorted(leaves, key=lambda node: -node.visits)[: ctx.group_size]
        out = []
        for index, leaf in enumerate(leaves):
            segment, before, after = step_columns(leaf)
            assert leaf.answer is not None
            turn: Turn = leaf.answer.turns[0].with_columns(segment=segment, returns=before, values=after)
            out.append(Episode(tree.prompt, tree.slot, index, [turn], ended=leaf.answer.ended))
        solved = any(leaf.outcome == 1 for leaf in leaves)
        out[0].info["counts"] = {"tree/solved" if solved else "tree/every_leaf_failed": 1}
        return out


def tree_advantage(
    before: Tensor,  # [N, T] Q before each choice's step
    after: Tensor,  # [N, T] Q after it; of the last step the outcome
    segment: Tensor,  # [N, T] ids >= 0 that do not fall along a row
    mask: Tensor,  # [N, T] bool
    gamma: float,
    gae_lambda: float,
) -> Tensor:  # [N, T], the same for all choices of a step
    """GAE over the steps of an answer: A_k = delta_k + gamma lambda A_(k+1), delta_k = gamma Q_after - Q_before.

    The outcome is a reward of the last step, so that it is not discounted there.
    """
    out, following = torch.zeros_like(before), torch.zeros(len(before), dtype=before.dtype)
    last = torch.where(mask, segment, -1).amax(1)  # [N]
    for step in range(int(last.max()), -1, -1):
        inside = mask & (segment == step)  # [N, T]
        count = inside.sum(1).clamp(min=1)
        q_before, q_after = (torch.where(inside, column, 0).sum(1) / count for column in (before, after))
        discount = torch.where(last == step, 1.0, gamma)
        advantage = discount * q_after - q_before + gamma * gae_lambda * following
        following = torch.where(inside.any(1), advantage, following)
        out = torch.where(inside, advantage[:, None], out)
    return out


@dataclass(frozen=True)
class TreeAdvantage(Annotator):
    """Advantages of the steps of an answer from the values of its search tree: see `tree_advantage`.

    Args:
        gamma: discount factor per step, that of the search.
        gae_lambda: 0 for the one-step advantage, 1 for the discounted outcome less Q before the step.
    """

    gamma: float = 0.96
    gae_lambda: float = 0.95

    def __post_init__(self) -> None:
        check_fraction("tree_advantage", gamma=self.gamma, gae_lambda=self.gae_lambda)

    def reads(self) -> frozenset[str]:
        return frozenset({"returns", "values", "segment", "action_mask"})

    def writes(self) -> frozenset[str]:
        return frozenset({"advantages"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        mask = batch["action_mask"]
        before, after = (zero_outside(batch[name], mask).float() for name in ("returns", "values"))
        advantages = tree_advantage(before, after, batch["segment"], mask, self.gamma, self.gae_lambda)
        return batch.with_columns(advantages=advantages)
