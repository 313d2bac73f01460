"""MoPPS: Thompson sampling of problems with a success rate near a target, from a Beta posterior per problem.

MoPPS: Model Predictive Prompt Selection, 2025, arXiv:2507.04632.

- the update of the posterior: `update_posterior`
- the selection of problems: `select_nearest`
- the curriculum: `Posterior`
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from mmrl.core.errors import check_at_least, check_fraction
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Episode
from mmrl.curricula.base import Curriculum, Selection, success_rates


class Posterior(Curriculum):
    """Thompson sampling with a Beta posterior of every problem's success rate.

    From `candidates` times as many random problems it takes those whose sampled rate is nearest to the target
    ("nearest"), or a random choice of those within `tolerance` of it, filled up by the nearest of the others
    ("within"). The pseudo-counts decay and the results of a problem are added: with s successes of n,
    alpha <- retain alpha + (1 - retain) + s, beta <- retain beta + (1 - retain) + n - s, from alpha = beta = 1.
    Source: Model Predictive Prompt Selection, 2025, arXiv:2507.04632.

    Args:
        target: target success rate.
        candidates: problems that are looked at for each that is taken.
        retain: fraction of the pseudo-counts that is kept per update, in [0, 1]; 1: no decay.
        rule: how problems are taken.
        tolerance: largest distance from the target under "within".
        score_name: "reward", or the name of a score, in [0, 1].
    """

    def __init__(
        self,
        target: float = 0.5,
        candidates: int = 8,
        retain: float = 0.5,
        rule: Literal["nearest", "within"] = "nearest",
        tolerance: float = 0.2,
        score_name: str = "reward",
    ):
        check_fraction("curriculum", target=target, retain=retain)
        check_at_least(1, "curriculum", candidates=candidates)
        self.target, self.candidates, self.retain, self.rule, self.tolerance = (
            target,
            candidates,
            retain,
            rule,
            tolerance,
        )
        self.score_name = score_name
        self.known: dict[int, tuple[float, float]] = {}  # alpha and beta of problems that were tried
        self._drawn = Selection()

    def select(self, count: int, ctx: Context) -> list[int]:
        selection = self._drawn.begin(count, ctx)
        rng = derive_rng("posterior", ctx.seed, ctx.iteration, len(selection))
        rest = np.array([i for i in range(len(ctx.task)) if i not in selection])
        candidates = rng.permutation(rest)[: max(self.candidates * count, count)]
        alpha, beta = np.array([self.known.get(int(i), (1.0, 1.0)) for i in candidates]).T
        problems = [
            int(i) for i in candidates[select_nearest(rng.beta(alpha, beta), self.target, count, self._within(), rng)]
        ]
        selection.update(problems)
        return problems

    def observe(self, groups: Sequence[Sequence[Episode]]) -> None:
        for group in groups:
            rates = success_rates(group, self.score_name)
            if rates:
                index = group[0].prompt.index
                self.known[index] = update_posterior(
                    *self.known.get(index, (1.0, 1.0)), sum(rates), len(rates), self.retain
                )

    def _within(self) -> float | None:
        return self.tolerance if self.rule == "within" else None

    def state_dict(self) -> dict[str, Any]:
        return {"known": dict(self.known), "drawn": self._drawn.state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.known = {int(i): tuple(pair) for i, pair in state["known"].items()}
        self._drawn.load_state(state["drawn"])


def update_posterior(alpha: float, beta: float, successes: float, trials: int, retain: float) -> tuple[float, float]:
    """Update the Beta posterior of a success rate; `retain` decays the old pseudo-counts."""
    fresh = 1 - retain
    return retain * alpha + fresh + successes, retain * beta + fresh + trials - successes


def select_nearest(
    rates: np.ndarray, target: float, count: int, tolerance: float | None, rng: np.random.Generator
) -> np.ndarray:
    """Select `count` rates by position: the nearest to the target, or first random ones within the tolerance."""
    order = np.argsort(np.abs(rates - target), kind="stable")
    if tolerance is None:
        return order[:count]
    inside = order[np.abs(rates[order] - target) <= tolerance]
    return np.concatenate([rng.permutation(inside), order[len(inside) :]])[:count]
