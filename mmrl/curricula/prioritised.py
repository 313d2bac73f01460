"""Prioritized sampling: select problems in proportion to their failure rate (Kimi k1.5)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from mmrl.core.errors import check_fraction, check_interval
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Episode, Prompt
from mmrl.curricula.base import Curriculum, Selection, success_rates


class Prioritised(Curriculum):
    """Draws problems, none twice in an iteration, with probability proportional to max(1 - success rate, min_weight).

    Problems of one kind share a rate: that of the tasks of a suite, for example, of which those that are solved are
    then sampled less. It is a fading mean over iterations: rate <- retain rate + (1 - retain) (mean of the iteration).
    Source: Kimi k1.5, 2025, arXiv:2501.12599, section 2.3.4, prioritised sampling.

    Args:
        info_key: entry of a prompt's `info` that names its kind; None: every problem is its own.
        min_weight: weight of kinds that always succeed, in (0, 1].
        retain: weight of the old rate in the moving average, in [0, 1).
        unknown: rate of a kind that was never tried, in [0, 1].
        score_name: "reward", or the name of a score, in [0, 1].
    """

    def __init__(
        self,
        info_key: str | None = None,
        min_weight: float = 0.1,
        retain: float = 0.8,
        unknown: float = 0.5,
        score_name: str = "reward",
    ):
        check_interval("curriculum", "(0, 1]", min_weight=min_weight)
        check_interval("curriculum", "[0, 1)", retain=retain)
        check_fraction("curriculum", unknown=unknown)
        self.info_key, self.min_weight, self.retain, self.unknown, self.score_name = (
            info_key,
            min_weight,
            retain,
            unknown,
            score_name,
        )
        self.rates: dict[Hashable, float] = {}  # of kinds that were tried
        self._kinds: list[Hashable] = []  # of the task's problems; made once
        self._drawn = Selection()

    def select(self, count: int, ctx: Context) -> list[int]:
        previous = self._drawn.begin(count, ctx)
        if len(self._kinds) != len(ctx.task):
            every = range(len(ctx.task))
            self._kinds = list(every) if self.info_key is None else [self._kind(ctx.task[i]) for i in every]
        weights = np.array([max(1 - self.rates.get(kind, self.unknown), self.min_weight) for kind in self._kinds])
        weights[list(previous)] = 0
        rng = derive_rng("prioritised", ctx.seed, ctx.iteration, len(previous))
        indices = rng.choice(len(weights), count, replace=False, p=weights / weights.sum()).tolist()
        previous.update(indices)
        return indices

    def observe(self, groups: Sequence[Sequence[Episode]]) -> None:
        by_kind: dict[Hashable, list[float]] = defaultdict(list)
        for group in groups:
            rates = success_rates(group, self.score_name)
            by_kind[self._kind(group[0].prompt)] += rates
        for kind, rates in by_kind.items():
            if rates:
                before = self.rates.get(kind, self.unknown)
                self.rates[kind] = self.retain * before + (1 - self.retain) * sum(rates) / len(rates)

    def _kind(self, prompt: Prompt) -> Hashable:
        if self.info_key is None:
            return prompt.index
        if self.info_key not in prompt.info:
            raise ValueError(
                f"curriculum.info_key={self.info_key!r} is not in the info of {prompt.key!r}, which has "
                f"{sorted(prompt.info)}; name one of them, or null for a rate of every problem"
            )
        return prompt.info[self.info_key]

    def state_dict(self) -> dict[str, Any]:
        return {"rates": dict(self.rates), "drawn": self._drawn.state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rates = dict(state["rates"])
        self._drawn.load_state(state["drawn"])
