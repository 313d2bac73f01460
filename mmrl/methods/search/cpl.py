"""CPL: search over plan steps, and preferences between sibling steps whose margin is their difference in value.

CPL: Critical Plan Step Learning Boosts LLM Generalization in Reasoning Tasks, 2024, arXiv:2409.08642.

- the search: `PlanSearch`, with selection by `puct`
- sibling pairs: `select_pairs`; Step-APO is `DPOLoss` with `margins: true`
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from mmrl.core.errors import check_at_least, check_positive
from mmrl.core.types import Context, Episode, Turn
from mmrl.rollouts.trees.node import StepNode
from mmrl.rollouts.trees.search import StepSearch, StepTree, step_columns
from mmrl.transforms.best_worst import label_preference


def puct(value: float, prior: float, visits: int, parent_visits: int, exploration: float = 1.5) -> float:
    """Q + c p sqrt(N_parent) / (1 + N), with p the geometric mean of the probabilities of a step's tokens."""
    return value + exploration * prior * math.sqrt(parent_visits) / (1 + visits)


def select_pairs(node: StepNode, solution_scale: float = 0.3) -> list[tuple[StepNode, StepNode, float]]:
    """Pairs of children (chosen, rejected) and their gap in Q.

    Of steps every one with Q > 0 is paired with every one with Q < 0. Of finished answers the one with the highest and
    the one with the lowest Q are, if their signs differ, and their Q counts `solution_scale` times.
    """
    steps = [child for child in node.children if child.outcome is None]
    pairs = [(a, b, a.value - b.value) for a in steps for b in steps if a.value > 0 > b.value]
    if answers := [child for child in node.children if child.outcome is not None]:
        best, worst = max(answers, key=lambda c: c.value), min(answers, key=lambda c: c.value)
        if best.value > 0 > worst.value:
            pairs.append((best, worst, solution_scale * (best.value - worst.value)))
    return pairs


class PlanSearch(StepSearch):
    """Tree search over plan steps; every pair of sibling steps is a group of two rows.

    Children are chosen by `puct`, and a node's Q is the mean of the estimates of the leaves below it. A row has the
    steps before, which are not trained on, and the step. `preference_margin` is alpha times the gap in Q, and `returns`
    is Q before the step, which the value head learns. A tree without a pair gives one row without a preference.
    Source: CPL, 2024, sections 3.1 and 3.2, arXiv:2409.08642.

    Args:
        iterations: as in `StepSearch`.
        width: as in `StepSearch`.
        depth: as in `StepSearch`.
        split: as in `StepSearch`.
        simulations: as in `StepSearch`.
        mix: as in `StepSearch`.
        right: as in `StepSearch`.
        exploration: c of `puct`.
        alpha: of the margin.
        solution_scale: factor of Q between finished answers.
        max_pairs: of a tree, the first ones.
    """

    def __init__(
        self,
        iterations: int = 200,
        width: int = 3,
        depth: int = 6,
        split: str = "\n",
        simulations: int = 0,
        mix: float = 0.5,
        right: float = 1.0,
        exploration: float = 1.5,
        alpha: float = 1.0,
        solution_scale: float = 0.3,
        max_pairs: int = 16,
    ):
        super().__init__(iterations, width, depth, split, simulations, mix, right)
        check_at_least(1, "rollout", max_pairs=max_pairs)
        check_at_least(0, "rollout", exploration=exploration, alpha=alpha)
        check_positive("rollout", solution_scale=solution_scale)
        self.exploration, self.alpha = exploration, alpha
        self.solution_scale, self.max_pairs = solution_scale, max_pairs

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"preference", "preference_margin", "returns"})

    def choose_child(self, tree: StepTree, node: StepNode) -> StepNode:
        return max(node.children, key=lambda c: puct(c.value, c.prior, c.visits, node.visits, self.exploration))

    def back_up(self, tree: StepTree, leaf: StepNode) -> None:
        # what the value head says is bounded as outcomes are
        estimate = min(max(leaf.estimate, -1.0), 1.0)
        for node in leaf.path():
            node.visits += 1
            node.value += (estimate - node.value) / node.visits

    def list_episodes(self, tree: StepTree, ctx: Context) -> list[Episode]:
        nodes = list(tree.root.nodes())
        pairs = [pair for node in nodes for pair in select_pairs(node, self.solution_scale)][: self.max_pairs]
        first = tree.slot * self.max_pairs
        out = []
        for number, (chosen, rejected, gap) in enumerate(pairs):
            for index, (node, sign) in enumerate([(chosen, 1), (rejected, -1)]):
                out.append(self._row(tree, node, first + number, index, sign, self.alpha * gap))
        if not out and len(nodes) > 1:
            out = [self._row(tree, nodes[1], first, 0, 0, 0.0)]
        if not out:
            error = {"error": "no step could be sampled", "counts": {"tree/failed": 1}}
            return [Episode(tree.prompt, first, 0, ended="error", info=error)]
        solved = any(node.outcome == 1 for node in nodes)
        out[0].info["counts"] = {"tree/pairs": len(pairs), "tree/solved" if solved else "tree/unsolved": 1}
        return out

    def _row(self, tree: StepTree, node: StepNode, group: int, index: int, sign: int, margin: float) -> Episode:
        """The row of a step behind the steps before it."""
        assert node.parent is not None
        start = len(node.parent.script)
        done = node.script.completion("", "done")
        mask = done.action_mask.clone()
        mask[:start] = False
        _, before, _ = step_columns(node)
        extra = {**done.extra, "returns": before, "preference_margin": torch.tensor(float(margin))}
        row = replace(done, action_mask=mask, extra=extra)
        return label_preference(Episode(tree.prompt, group, index, [Turn(row)]), sign)
