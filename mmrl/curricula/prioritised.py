"""Problems in proportion to how often they still fail."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from mmrl.curricula.base import Curriculum
from mmrl.episodes.filter import earned
from mmrl.rng import derive_rng
from mmrl.types import Context, Episode, Prompt


class Prioritised(Curriculum):
    """Draws problems, none twice in an iteration, with probability proportional to max(1 - success rate, least).

    Problems of one kind share a rate: that of the tasks of a suite, for example, of which those that are solved are
    then posed less. It is a fading mean over iterations: rate <- forget rate + (1 - forget) (mean of the iteration).
    Source: Kimi k1.5, 2025, arXiv:2501.12599, section 2.3.4, prioritised sampling.

    Args:
        by: entry of a prompt's `info` that says its kind; None: every problem is its own.
        least: weight of what always succeeds, in (0, 1]: it is not forgotten.
        forget: share of a rate that outlives an iteration with episodes of its kind, in [0, 1).
        unknown: rate of a kind that was never tried, in [0, 1].
        field: "reward", or the name of a score, in [0, 1].
    """

    def __init__(
        self,
        by: str | None = None,
        least: float = 0.1,
        forget: float = 0.8,
        unknown: float = 0.5,
        field: str = "reward",
    ):
        if not 0 < least <= 1 or not 0 <= forget < 1 or not 0 <= unknown <= 1:
            raise ValueError(
                "curriculum: need least in (0, 1], forget in [0, 1) and unknown in [0, 1], "
                f"got {least}, {forget} and {unknown}"
            )
        self.by, self.least, self.forget, self.unknown, self.field = by, least, forget, unknown, field
        self.rates: dict[Hashable, float] = {}  # of kinds that were tried
        self._kinds: list[Hashable] = []  # of the task's problems; made once
        self._drawn: tuple[int, set[int]] = (-1, set())  # iteration, and what it was given already

    def select(self, count: int, ctx: Context) -> list[int]:
        iteration, taken = self._drawn
        if iteration != ctx.iteration:
            taken = set()
        if len(ctx.task) - len(taken) < count:
            raise ValueError(
                f"the curriculum is asked for {count} further problems in one iteration, but task {ctx.task.name!r} "
                f"has {len(ctx.task)}; lower data.num_prompts"
            )
        if len(self._kinds) != len(ctx.task):
            every = range(len(ctx.task))
            self._kinds = list(every) if self.by is None else [self._kind(ctx.task[i]) for i in every]
        weights = np.array([max(1 - self.rates.get(kind, self.unknown), self.least) for kind in self._kinds])
        weights[list(taken)] = 0
        rng = derive_rng("prioritised", ctx.seed, ctx.iteration, len(taken))
        chosen = rng.choice(len(weights), count, replace=False, p=weights / weights.sum()).tolist()
        self._drawn = (ctx.iteration, taken | set(chosen))
        return chosen

    def observe(self, groups: Sequence[Sequence[Episode]]) -> None:
        found: dict[Hashable, list[float]] = defaultdict(list)
        for group in groups:
            rates = [earned(episode, self.field) for episode in group if episode.ended != "error"]
            if any(not 0 <= rate <= 1 for rate in rates):
                raise ValueError(
                    f"curriculum.field={self.field!r} of {group[0].prompt.key!r} is {rates}, no success rate in [0, 1]"
                )
            found[self._kind(group[0].prompt)] += rates
        for kind, rates in found.items():
            if rates:
                before = self.rates.get(kind, self.unknown)
                self.rates[kind] = self.forget * before + (1 - self.forget) * sum(rates) / len(rates)

    def _kind(self, prompt: Prompt) -> Hashable:
        if self.by is None:
            return prompt.index
        if self.by not in prompt.info:
            raise ValueError(
                f"curriculum.by={self.by!r}: {prompt.key!r} does not say it, it has {sorted(prompt.info)}; "
                "name one of them, or null for a rate of every problem"
            )
        return prompt.info[self.by]

    def state_dict(self) -> dict[str, Any]:
        return {"rates": dict(self.rates), "drawn": (self._drawn[0], sorted(self._drawn[1]))}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rates = dict(state["rates"])
        self._drawn = (state["drawn"][0], set(state["drawn"][1]))
