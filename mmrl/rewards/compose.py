"""Reward composed of named scores: weighted sum, DAPO's overlong penalty, gates, vetoes and bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mmrl.core.errors import check_fraction, check_interval, check_positive
from mmrl.core.types import Episode
from mmrl.rewards.base import Reward
from mmrl.rewards.shaping import overlong_penalty

Bounds = Sequence[float]
"""Lower and upper bound."""


@dataclass(frozen=True)
class WeightedSum(Reward):
    """Reward of an episode: sum_k weights_k * scores_k.

    Args:
        weights: by name of the score. Empty where the environment pays every decision itself: 0 for all episodes.
    """

    weights: dict[str, float]

    @property
    def constant(self) -> bool:
        return type(self).__call__ is WeightedSum.__call__ and not self.weights

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        return [sum((w * _score(episode, name) for name, w in self.weights.items()), 0.0) for episode in group]


@dataclass(frozen=True)
class OverlongPenalty(WeightedSum):
    """Reward of an episode: sum_k weights_k * scores_k plus DAPO's soft overlong penalty, the score `overlong`.

    The penalty is 0 up to (1 - buffer_fraction) max_tokens tokens and falls linearly to -1 at max_tokens.
    Source: DAPO, 2025, equation 13, arXiv:2503.14476, with a buffer of 4,096 of 20,480 tokens.

    Args:
        weights: by name of the score, for the other scores.
        max_tokens: longest completion, usually sampling.max_tokens.
        buffer_fraction: share of max_tokens in which the penalty rises.
    """

    max_tokens: int = 20_480
    buffer_fraction: float = 0.2

    def __post_init__(self) -> None:
        check_interval("reward", "(0, 1]", buffer_fraction=self.buffer_fraction)

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        buffer = self.buffer_fraction * self.max_tokens
        return [{"overlong": overlong_penalty(episode.tokens, self.max_tokens, buffer)} for episode in episodes]

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        return [reward + episode.scores["overlong"] for reward, episode in zip(super().__call__(group), group)]


@dataclass(frozen=True)
class Gate:
    """Condition under which a score counts.

    Args:
        score: the score that is compared.
        at_least: its smallest value.
    """

    score: str
    at_least: float = 1.0


@dataclass(frozen=True)
class Interaction:
    """Further part of a reward: weight * first * second, of two scores that have weights.

    Args:
        first: name of a score.
        second: name of another one.
        weight: of the product.
    """

    first: str
    second: str
    weight: float


@dataclass(frozen=True)
class Composition(Reward):
    """Reward of an episode: clamp(sum_k weights_k * gate_k * saturate(clamp_k(scores_k))), or `veto_reward`.

    In this order: a score is clamped to its bounds; above the knee it keeps `slope` of what it has more; it counts 0
    unless its gate is open; products of two such values are added; the weighted sum, or mean, is raised to `power` and
    clamped to `bounds`. An episode with a vetoed score has the reward `veto_reward`, whatever its other scores are.

    Source of veto, saturation, interaction and shaping: Huang et al., "Reinforcement Learning with Rubric Anchors",
    arXiv 2508.12790, which gives no equations; the form is ours.

    Args:
        weights: by name of the score.
        gates: by name of the score, the condition under which it counts, for example {exact: {score: format}}.
        clamps: by name of the score, its lower and upper bound.
        vetoes: by name of the score, the value at or below which the episode is vetoed.
        veto_reward: reward of a vetoed episode.
        mean: divide by the sum of the weights.
        knee: score from which on `slope` applies; None leaves scores as they are.
        slope: share of a score above the knee that is kept.
        bounds: lower and upper bound of the weighted sum; None for no bounds.
        interactions: products of two scores, by any name; their weights count in the mean too.
        power: exponent of the absolute value of the sum or mean, whose sign stays: above 1 the best differ most.
    """

    weights: Mapping[str, float]
    gates: Mapping[str, Gate] = field(default_factory=dict)
    clamps: Mapping[str, Bounds] = field(default_factory=dict)
    vetoes: Mapping[str, float] = field(default_factory=dict)
    veto_reward: float = 0.0
    mean: bool = False
    knee: float | None = None
    slope: float = 0.25
    bounds: Bounds | None = None
    interactions: Mapping[str, Interaction] = field(default_factory=dict)
    power: float = 1.0

    def __post_init__(self) -> None:
        for name, bounds in {**self.clamps, "bounds": self.bounds or (0.0, 0.0)}.items():
            if len(bounds) != 2 or not bounds[0] <= bounds[1]:
                raise ValueError(f"data.reward: bounds of {name!r} must be [lower, upper], got {list(bounds)}")
        for option in ("gates", "clamps"):
            if unknown := sorted(getattr(self, option).keys() - self.weights.keys()):
                raise ValueError(
                    f"data.reward.{option} names {unknown}, which have no weight; weights are {dict(self.weights)}"
                )
        for name, each in self.interactions.items():
            if unknown := sorted({each.first, each.second} - self.weights.keys()):
                raise ValueError(
                    f"data.reward.interactions.{name} names {unknown}, which have no weight; weights are "
                    f"{dict(self.weights)}"
                )
        if self.mean and self._weight <= 0:
            raise ValueError(f"data.reward.mean needs weights with a positive sum, got {dict(self.weights)}")
        check_fraction("data.reward", slope=self.slope)
        check_positive("data.reward", power=self.power)

    @property
    def _weight(self) -> float:
        """Sum of the weights of scores and interactions."""
        return sum(self.weights.values()) + sum(each.weight for each in self.interactions.values())

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        return [self._compose(episode) for episode in group]

    def _compose(self, episode: Episode) -> float:
        if any(_score(episode, name, "vetoes") <= most for name, most in self.vetoes.items()):
            return self.veto_reward
        total = sum((weight * self._value(episode, name) for name, weight in self.weights.items()), 0.0)
        for each in self.interactions.values():
            total += each.weight * self._value(episode, each.first) * self._value(episode, each.second)
        total = total / self._weight if self.mean else total
        return _clamp(total if self.power == 1 else math.copysign(abs(total) ** self.power, total), self.bounds)

    def _value(self, episode: Episode, name: str) -> float:
        score = _clamp(_score(episode, name), self.clamps.get(name))
        if self.knee is not None:
            score = min(score, self.knee) + self.slope * max(score - self.knee, 0.0)
        gate = self.gates.get(name)
        closed = gate is not None and _score(episode, gate.score, "gates") < gate.at_least
        return 0.0 if closed else score


def _clamp(value: float, bounds: Bounds | None) -> float:
    return value if bounds is None else min(max(value, bounds[0]), bounds[1])


def _score(episode: Episode, name: str, option: str = "weights") -> float:
    """Return a finite score of an episode; a missing one is refused in the name of the option."""
    if name not in episode.scores:
        raise KeyError(
            f"data.reward.{option} names {name!r}, but {episode.prompt.key!r} was scored with {sorted(episode.scores)}"
        )
    value = episode.scores[name]
    if not math.isfinite(value):
        raise ValueError(f"score {name!r} of {episode.prompt.key!r} is {value}")
    return value
