"""Problems whose success rate is probably near a target, by what their trials have shown so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from mmrl.curricula.base import Curriculum
from mmrl.episodes.filter import earned
from mmrl.rng import derive_rng
from mmrl.types import Context, Episode


class Posterior(Curriculum):
    """Thompson sampling with a Beta posterior of every problem's success rate.

    From `candidates` times as many random problems it takes those whose drawn rate is nearest to the target
    ("nearest"), or a random choice of those within `reach` of it, filled up by the nearest of the others ("within").
    Trials of a problem then count, and what was known fades: with s successes of n,
    alpha <- forget alpha + (1 - forget) + s, beta <- forget beta + (1 - forget) + n - s, from alpha = beta = 1.
    Source: Model Predictive Prompt Selection, 2025, arXiv:2507.04632.

    Args:
        target: success rate that is wanted.
        candidates: problems that are looked at for each that is taken.
        forget: share of what is known that outlives an update, in [0, 1]; 1 forgets nothing.
        rule: how problems are taken.
        reach: for "within".
        field: "reward", or the name of a score, in [0, 1].
    """

    def __init__(
        self,
        target: float = 0.5,
        candidates: int = 8,
        forget: float = 0.5,
        rule: Literal["nearest", "within"] = "nearest",
        reach: float = 0.2,
        field: str = "reward",
    ):
        if not 0 <= target <= 1 or not 0 <= forget <= 1 or candidates < 1:
            raise ValueError(
                "curriculum: need target and forget in [0, 1] and candidates >= 1, "
                f"got {target}, {forget} and {candidates}"
            )
        self.target, self.candidates, self.forget, self.rule, self.reach = target, candidates, forget, rule, reach
        self.field = field
        self.known: dict[int, tuple[float, float]] = {}  # alpha and beta of problems that were tried
        self._drawn: tuple[int, set[int]] = (-1, set())  # iteration, and what it was given already

    def select(self, count: int, ctx: Context) -> list[int]:
        iteration, taken = self._drawn
        if iteration != ctx.iteration:
            taken = set()
        rng = derive_rng("posterior", ctx.seed, ctx.iteration, len(taken))
        left = np.array([i for i in range(len(ctx.task)) if i not in taken])
        if len(left) < count:
            raise ValueError(
                f"the curriculum is asked for {count} further problems in one iteration, but task {ctx.task.name!r} "
                f"has {len(ctx.task)}; lower data.num_prompts"
            )
        seen = rng.permutation(left)[: max(self.candidates * count, count)]
        alpha, beta = np.array([self.known.get(int(i), (1.0, 1.0)) for i in seen]).T
        chosen = [int(i) for i in seen[nearest(rng.beta(alpha, beta), self.target, count, self._within(), rng)]]
        self._drawn = (ctx.iteration, taken | set(chosen))
        return chosen

    def observe(self, groups: Sequence[Sequence[Episode]]) -> None:
        for group in groups:
            valid = [episode for episode in group if episode.ended != "error"]
            rates = [earned(episode, self.field) for episode in valid]
            if any(not 0 <= rate <= 1 for rate in rates):
                raise ValueError(
                    f"curriculum.field={self.field!r} of {group[0].prompt.key!r} is {rates}, no success rate in [0, 1]"
                )
            if rates:
                index = group[0].prompt.index
                self.known[index] = updated(*self.known.get(index, (1.0, 1.0)), sum(rates), len(rates), self.forget)

    def _within(self) -> float | None:
        return self.reach if self.rule == "within" else None

    def state_dict(self) -> dict[str, Any]:
        return {"known": dict(self.known), "drawn": (self._drawn[0], sorted(self._drawn[1]))}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.known = {int(i): tuple(pair) for i, pair in state["known"].items()}
        self._drawn = (state["drawn"][0], set(state["drawn"][1]))


def updated(alpha: float, beta: float, successes: float, trials: int, forget: float) -> tuple[float, float]:
    """The posterior after further trials."""
    fresh = 1 - forget
    return forget * alpha + fresh + successes, forget * beta + fresh + trials - successes


def nearest(rates: np.ndarray, target: float, count: int, reach: float | None, rng: np.random.Generator) -> np.ndarray:
    """Positions of `count` rates: the nearest to the target, or first a random choice of those within reach."""
    order = np.argsort(np.abs(rates - target), kind="stable")
    if reach is None:
        return order[:count]
    inside = order[np.abs(rates[order] - target) <= reach]
    return np.concatenate([rng.permutation(inside), order[len(inside) :]])[:count]
