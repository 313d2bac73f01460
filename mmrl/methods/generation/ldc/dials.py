"""LDC's dials: prompts with strengths, the reward of the dimension that is set, and how scores follow the dials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import isnan, nan
from typing import Any

import torch

from mmrl.core.errors import ConfigError, check_at_least
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Episode, Prompt
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.metrics.finished_episodes import count_errors, drop_errors, get_score
from mmrl.rewards.models.scorer import ScorerReward
from mmrl.rollouts.base import Rollout

DIMENSIONS = ("novelty", "feasibility", "effectiveness")
"""The paper's dimensions of a research idea."""
MIDDLE, HALF = 5.5, 4.5
"""Middle and half width of ratings from 1 to 10."""


@dataclass(frozen=True)
class SteeredPrompt(Prompt):
    """A prompt with strengths, which the policy's observation has too."""

    strengths: tuple[float, ...] = ()

    @property
    def observation(self) -> dict[str, Any]:
        return {**super().observation, "strengths": self.strengths}


def set_strengths(prompt: Prompt, strengths: Sequence[float]) -> SteeredPrompt:
    """Return the prompt with these strengths."""
    values = {field.name: getattr(prompt, field.name) for field in fields(Prompt)}
    return SteeredPrompt(**values, strengths=tuple(float(c) for c in strengths))


def state_strengths(prompt: Prompt, names: Sequence[str], strengths: Sequence[float]) -> Prompt:
    """Return the prompt with strengths after its text: ` <b> 1.0 <a> 0.0`."""
    if not prompt.messages or not isinstance(prompt.messages[-1]["content"], str):
        raise ValueError(f"strengths stand after the text of a prompt, and {prompt.key!r} does not end with a text")
    *before, last = prompt.messages
    text = "".join(f" <{name}> {c:.1f}" for name, c in zip(names, strengths, strict=True))
    return replace(prompt, messages=(*before, {**last, "content": last["content"] + text}))


def one_dial(number: int, dimensions: int) -> tuple[float, ...]:
    """The strengths with one of K dimensions set: number 2 d is dimension d at 1, number 2 d + 1 the same at -1."""
    sign = 1.0 if number % 2 == 0 else -1.0
    return tuple(sign if d == number // 2 else 0.0 for d in range(dimensions))


class Dials(Rollout):
    """Set one dimension of each prompt high or low, and play it; `Prompt.info["strengths"]` has the strengths.

    Args:
        play: what answers the prompts.
        names: of the dimensions.
        draw: draw the dimension and its sign anew for each prompt and iteration; False takes all 2 K of them in turn.
        stated: write the strengths into the prompt's text, for a policy that reads them there.
    """

    def __init__(self, play: Rollout, names: Sequence[str] = DIMENSIONS, draw: bool = True, stated: bool = False):
        check_dimensions(names, "rollout.names")
        self.names, self.play, self.draw, self.stated = tuple(names), play, draw, stated

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        return self.play.collect([(slot, self.set(slot, prompt, ctx)) for slot, prompt in prompts], ctx)

    def set(self, slot: int, prompt: Prompt, ctx: Context) -> Prompt:
        """Set a dial of the prompt of a slot."""
        count = 2 * len(self.names)
        rng = derive_rng("dials", ctx.seed, ctx.purpose, ctx.iteration, slot)
        strengths = one_dial(int(rng.integers(count)) if self.draw else slot % count, len(self.names))
        noted = replace(prompt, info={**prompt.info, "strengths": strengths})
        return state_strengths(noted, self.names, strengths) if self.stated else set_strengths(noted, strengths)


class DialReward(ScorerReward):
    """Reward of an episode: sum_d c_d z_d + combined sum_d w_d z_d, with z_d = (rating_d - 5.5) / 4.5.

    The ratings are those of the heads of a scorer of the run, from 1 to 10, the scores rating_NAME; c are the prompt's
    strengths. `rating`, a score too, is the weighted sum of the ratings.

    Args:
        weights: w by the name of the dimension, in the order of the heads; None or none for 1/3 of the paper's each.
        model: of `model.frozen_models`, a `ScoringPolicy`.
        combined: coefficient of the weighted sum of all dimensions.
        batch_size: answers per forward pass.
    """

    def __init__(
        self,
        weights: dict[str, float] | None = None,
        model: str = "scorer",
        combined: float = 0.0,
        batch_size: int = 64,
    ):
        weights = weights or dict.fromkeys(DIMENSIONS, 1 / len(DIMENSIONS))
        check_dimensions(list(weights), "reward.weights")
        check_at_least(0, "reward", combined=combined)
        super().__init__(model, "scored", dict(weights), batch_size)
        self.combined = combined

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        if self.scorer is None:
            raise ConfigError("reward.model is a model of a run, and is asked outside of its rollouts")
        ratings: list[list[float]] = []
        for start in range(0, len(episodes), self.batch_size):
            ratings += self._rate([self._read(episode) for episode in episodes[start : start + self.batch_size]])
        by_name = [dict(zip(self.weights, row, strict=True)) for row in ratings]
        return [
            {**{f"rating_{name}": rating for name, rating in row.items()}, "rating": combine(self.weights, row)}
            for row in by_name
        ]

    @torch.no_grad()
    def _rate(self, raws: Sequence[dict[str, Any]]) -> list[list[float]]:
        """Ratings of the heads for answers."""
        rows = self.scorer.collate([self.scorer.encode(raw) for raw in raws])
        heads = self.scorer.head_scores({name: column.to(self.scorer.device) for name, column in rows.items()})
        if heads.shape[1] != len(self.weights):
            raise ConfigError(
                f"reward.weights has {len(self.weights)} dimensions, and model.frozen_models.{self.model} has "
                f"{heads.shape[1]} heads; set its heads to the names of the dimensions"
            )
        return heads.tolist()

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        return [self._sum(episode, read_strengths(episode.prompt, len(self.weights))) for episode in group]

    def _sum(self, episode: Episode, strengths: Sequence[float]) -> float:
        z = {name: (episode.scores[f"rating_{name}"] - MIDDLE) / HALF for name in self.weights}
        dialled = sum(c * value for c, value in zip(strengths, z.values()))
        return dialled + self.combined * combine(self.weights, z)


def combine(weights: dict[str, float], values: dict[str, float]) -> float:
    """The weighted sum of the dimensions."""
    return sum(weight * values[name] for name, weight in weights.items())


@dataclass(frozen=True)
class DialResponse(Evaluator):
    """How scores follow the dials: the mean of a score at strength 1 minus that at -1, all other strengths 0.

    own/NAME is the response of a dimension's own score, cross/NAME the largest absolute response of another one; own
    and cross are their means over dimensions, and selective the number of dimensions with own > cross. Of a dial that
    no episode has they are not numbers.

    Args:
        scores: names of the scores, in the order of the strengths.
    """

    scores: Sequence[str]

    def __post_init__(self) -> None:
        check_dimensions(self.scores, "dial_response.scores")

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        valid, size = drop_errors(episodes), len(self.scores)
        if not any(episode.prompt.info.get("strengths") for episode in valid):
            raise KeyError(
                "dial_response: no episode has strengths; play them with "
                "evaluation.rollout._target_=mmrl.methods.generation.ldc.dials.Dials and draw=false"
            )
        own, cross = [], []
        for d in range(size):
            high, low = (self._means(valid, one_dial(2 * d + sign, size)) for sign in (0, 1))
            response = [first - second for first, second in zip(high, low)]
            own.append(response[d])
            cross.append(max((abs(value) for k, value in enumerate(response) if k != d), key=_order))
        by_name = {f"own/{name}": value for name, value in zip(self.scores, own)}
        by_name |= {f"cross/{name}": value for name, value in zip(self.scores, cross)}
        selective = float(sum(a > b for a, b in zip(own, cross)))
        total = {"own": sum(own) / size, "cross": sum(cross) / size, "selective": selective}
        return {**by_name, **total, "errors": count_errors(episodes)}

    def _means(self, episodes: Sequence[Episode], strengths: tuple[float, ...]) -> list[float]:
        """Mean scores of the episodes with these strengths; not numbers without any."""
        size = len(self.scores)
        chosen = [episode for episode in episodes if read_strengths(episode.prompt, size) == strengths]
        total = [sum(get_score(episode, name) for episode in chosen) for name in self.scores]
        return [value / len(chosen) if chosen else nan for value in total]


def _order(value: float) -> tuple[bool, float]:
    """Numbers by size, and what is none above them."""
    return isnan(value), value


def read_strengths(prompt: Prompt, dimensions: int) -> tuple[float, ...]:
    """Read the strengths of a prompt; 0 where it states none.

    Raises:
        ValueError: they are of other dimensions.
    """
    strengths = tuple(prompt.info.get("strengths") or (0.0,) * dimensions)
    if len(strengths) != dimensions:
        raise ValueError(f"{prompt.key!r} has {len(strengths)} strengths, and {dimensions} dimensions are named")
    return strengths


def check_dimensions(names: Sequence[str], part: str) -> None:
    """Refuse fewer than two different names of dimensions."""
    if isinstance(names, str) or len(set(names)) < max(2, len(names)):
        raise ValueError(f"{part} must name at least two different dimensions, got {names!r}")
