"""SwS: sample the next problems from the categories on which the policy fails.

SwS: Self-aware Weakness-driven Problem Synthesis in Reinforcement Learning for LLM Reasoning, 2025, arXiv:2506.08989.

- problems with low success rates that do not rise: `is_weak`
- a share of each kind in proportion to its fraction of weak problems: `failure_shares`
- a first part on the first problems of the task, then these and new ones of the weak kinds: `WeakKinds`
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from mmrl.core.errors import check_at_least, check_fraction
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Episode, Task
from mmrl.curricula.base import Curriculum, Selection
from mmrl.curricula.history import PromptHistory, slope


def is_weak(rates: Sequence[float], max_rate: float = 0.5) -> bool:
    """Whether the success rate over the visits was always below `max_rate` and falls.

    Source: SwS, 2025, weakness identification, arXiv:2506.08989.
    """
    return max(rates) < max_rate and slope(rates) < 0


def failure_shares(ratios: Mapping[Hashable, float]) -> dict[Hashable, float]:
    """Share of each kind: its fraction of weak problems divided by the sum over kinds; equal if none is weak.

    Source: SwS, 2025, budget of the categories, arXiv:2506.08989.
    """
    total = sum(ratios.values())
    return {kind: ratio / total if total > 0 else 1 / len(ratios) for kind, ratio in ratios.items()}


class WeakKinds(Curriculum):
    """Selects from the first `pool` problems, later from these and from new ones, kinds by their weak problems.

    The first `pool` problems are trained on for `explore_iterations`. Then the share of every kind is computed once,
    from the problems that `is_weak` finds. From then on a problem is one of the pool, uniformly, with probability
    `original_fraction`, and otherwise one of the task's others, kinds in proportion to their shares; none is drawn
    twice in an iteration. A task whose problems are generated stands in for the synthesis of problems by a language
    model. Put `KeepPassRates` into data.transforms to leave out what is too easy or too hard. Source: SwS, 2025,
    augmented training on old and new problems, arXiv:2506.08989.

    Args:
        info_key: entry of a prompt's `info` that names its kind.
        explore_iterations: on the pool.
        pool: problems of the first part.
        max_rate: success rate that a weak problem never reaches.
        score_name: "reward", or the name of a score, in [0, 1].
        original_fraction: probability of a problem of the pool in the second part.
    """

    def __init__(
        self,
        info_key: str,
        explore_iterations: int,
        pool: int,
        max_rate: float = 0.5,
        score_name: str = "reward",
        original_fraction: float = 0.5,
    ):
        check_at_least(1, "curriculum", explore_iterations=explore_iterations, pool=pool)
        check_fraction("curriculum", original_fraction=original_fraction)
        self.original_fraction = original_fraction
        self.info_key, self.explore_iterations, self.pool, self.max_rate = info_key, explore_iterations, pool, max_rate
        self.history, self._drawn = PromptHistory(score_name), Selection()
        self._kinds: dict[Hashable, list[int]] = {}  # problems of each kind; made once
        self._shares: dict[Hashable, float] | None = None  # of the kinds, after the first part

    def select(self, count: int, ctx: Context) -> list[int]:
        selection = self._drawn.begin(count, ctx)
        rng = derive_rng("weak_kinds", ctx.seed, ctx.iteration, len(selection))
        weights = self._weights(ctx)
        # no problem twice in an iteration
        weights[list(selection)] = 0.0
        if (weights > 0).sum() < count:
            raise ValueError(
                f"curriculum: {count} further problems are asked for in one iteration, but {(weights > 0).sum()} are "
                "left; raise curriculum.pool or lower data.num_prompts"
            )
        choice = rng.choice(len(weights), count, replace=False, p=weights / weights.sum()).tolist()
        selection.update(choice)
        return choice

    def _weights(self, ctx: Context) -> np.ndarray:
        """(problems,) weight of each: uniform over the pool; later a new one has its kind's share by their number."""
        original, new = np.zeros(len(ctx.task)), np.zeros(len(ctx.task))
        original[: self.pool] = 1.0
        if ctx.iteration < self.explore_iterations:
            return original
        if self._shares is None:
            self._shares = self.shares(ctx.task)
        for kind, share in self._shares.items():
            indices = [index for index in self._group_kinds(ctx.task)[kind] if index >= self.pool]
            new[indices] = share / max(len(indices), 1)
        if not new.any():
            raise ValueError(
                f"curriculum: task {ctx.task.name!r} has no new problem of a weak kind beyond its first "
                f"curriculum.pool={self.pool}; lower curriculum.pool"
            )
        return self.original_fraction * original / original.sum() + (1 - self.original_fraction) * new / new.sum()

    def shares(self, task: Task) -> dict[Hashable, float]:
        """Compute the share of each kind from the problems visited so far."""
        kinds = self._group_kinds(task)
        kind_of = {index: kind for kind, indices in kinds.items() for index in indices}
        verdicts: dict[Hashable, list[bool]] = {kind: [] for kind in kinds}
        for index, rates in self.history.rates.items():
            verdicts[kind_of[index]].append(is_weak(rates, self.max_rate))
        return failure_shares({kind: sum(weak) / max(len(weak), 1) for kind, weak in verdicts.items()})

    def _group_kinds(self, task: Task) -> dict[Hashable, list[int]]:
        """The indices of the problems of each kind."""
        if not self._kinds:
            kinds: dict[Hashable, list[int]] = defaultdict(list)
            for index in range(len(task)):
                kinds[self._kind(task, index)].append(index)
            self._kinds = dict(kinds)
        return self._kinds

    def _kind(self, task: Task, index: int) -> Hashable:
        prompt = task[index]
        if self.info_key not in prompt.info:
            raise ValueError(
                f"curriculum.info_key={self.info_key!r} is not in the info of {prompt.key!r}, which has "
                f"{sorted(prompt.info)}; name one of them"
            )
        return prompt.info[self.info_key]

    def observe(self, groups: Sequence[Sequence[Episode]]) -> None:
        self.history.observe(groups)

    def state_dict(self) -> dict[str, Any]:
        shares = None if self._shares is None else list(self._shares.items())
        return {**self.history.state_dict(), "drawn": self._drawn.state(), "shares": shares}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.history.load_state_dict(state)
        self._drawn.load_state(state["drawn"])
        shares = state.get("shares")
        self._shares = None if shares is None else dict(shares)
