"""1-shot RLVR: train on the few problems whose success rate has the highest variance over a first part of training.

Reinforcement Learning for Reasoning in Large Language Models with One Training Example, 2025, arXiv:2504.20571.

- the variance of a problem's success rate over its visits: `mmrl.curricula.history.variance`
- a part of training on all problems, then the same few in every iteration: `HighestVariance`
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mmrl.core.errors import check_at_least
from mmrl.core.types import Context, Episode
from mmrl.curricula.base import Curriculum
from mmrl.curricula.history import PromptHistory, variance
from mmrl.curricula.sampler import Shuffled


class HighestVariance(Curriculum):
    """Selects shuffled problems at first, then always the `count` with the highest variance of the success rate.

    In iteration `explore_iterations` the problems are ranked by the variance of their rates, of equal ones the first of
    the task first. From then on the best `count` are repeated in order until an iteration has its number of prompts.
    Give the exploration several passes over the problems: a single visit has no variance. Source: 1-shot RLVR, 2025,
    equation 1, arXiv:2504.20571, where the ranking comes from a run of its own.

    Args:
        explore_iterations: on shuffled problems.
        count: problems to train on afterwards.
        score_name: "reward", or the name of a score, in [0, 1].
    """

    def __init__(self, explore_iterations: int, count: int = 1, score_name: str = "reward"):
        check_at_least(1, "curriculum", explore_iterations=explore_iterations, count=count)
        self.explore_iterations, self.count = explore_iterations, count
        self.history, self._explore = PromptHistory(score_name), Shuffled()
        self.chosen: list[int] = []  # ranked; empty while exploring

    def select(self, count: int, ctx: Context) -> list[int]:
        if ctx.iteration < self.explore_iterations:
            return self._explore.select(count, ctx)
        if not self.chosen:
            self.chosen = self._rank()
        return [self.chosen[k % len(self.chosen)] for k in range(count)]

    def _rank(self) -> list[int]:
        variances = {index: variance(rates) for index, rates in self.history.rates.items()}
        if len(variances) < self.count:
            raise ValueError(
                f"curriculum.count={self.count} problems are to be chosen, but {len(variances)} were visited in "
                f"{self.explore_iterations} iterations; raise curriculum.explore_iterations or data.num_prompts"
            )
        return sorted(variances, key=lambda index: (-variances[index], index))[: self.count]

    def observe(self, groups: Sequence[Sequence[Episode]]) -> None:
        if not self.chosen:
            self.history.observe(groups)

    def state_dict(self) -> dict[str, Any]:
        return {**self.history.state_dict(), "explore": self._explore.state_dict(), "chosen": list(self.chosen)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.history.load_state_dict(state)
        self._explore.load_state_dict(state["explore"])
        self.chosen = list(state["chosen"])
