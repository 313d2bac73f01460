"""RiC: fine-tune on answers with their rewards in the prompt, then ask for the rewards that a preference maps to.

Rewards-in-Context: Multi-objective Alignment of Foundation Models with Dynamic Preference Adjustment, 2024,
arXiv:2402.10207.

- rewards in the prompt, after normalising them: `annotate`, `ScoreScale`
- the offline stage on logged answers and the online stage with goals near the front: `RewardGoals`, `draw_goals`
- answers labelled with the rewards that they have, those of the best 30 % of any: `AnnotateScores`
- from a preference to rewards: `map_preference`, `PreferencePrompts`
- linear scalarisation, with which it is compared: `PreferenceSum`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from mmrl.core.errors import check_at_least, check_fraction
from mmrl.core.groups import get_score
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Episode, Prompt
from mmrl.rewards.base import Reward
from mmrl.rollouts.base import Rollout
from mmrl.transforms.base import StatefulTransform

LIMIT = 4.0
"""Normalised rewards lie in [-4, 4]: their 1e-4 and 1 - 1e-4 quantiles are the ends, as those of a standard normal."""
_TAIL = 1e-4
Mapped = Literal["l2", "linf", "linear", "weights"]


def annotate(prompt: Prompt, names: Sequence[str], values: Sequence[float]) -> Prompt:
    """Return the prompt with rewards after its text, rounded to 0.1: ` <count_b> 1.3 <count_d> -0.4`."""
    if not prompt.messages or not isinstance(prompt.messages[-1]["content"], str):
        raise ValueError(f"rewards stand after the text of a prompt, and {prompt.key!r} does not end with a text")
    last = prompt.messages[-1]
    text = "".join(f" <{name}> {value + 0.0:.1f}" for name, value in zip(names, np.round(values, 1), strict=True))
    return replace(prompt, messages=(*prompt.messages[:-1], {**last, "content": last["content"] + text}))


def map_preference(preference: Sequence[float], kind: Mapped = "l2", low: float = -LIMIT, high: float = LIMIT) -> Any:
    """Map a preference p, whose weights sum to 1, to a normalised reward for each objective.

    linear: low + (high - low) p. l2: the same of p / |p|, which asks for the most along the direction of p. linf: high
    for the largest weight, low + (high - low) min(n p, 1) for the others. weights: p as it is.
    Source: Rewards-in-Context, 2024, section 3.3 and appendix, arXiv:2402.10207.
    """
    weights = np.asarray(preference, dtype=float)
    shares = {
        "linear": weights,
        "l2": weights / np.linalg.norm(weights),
        "linf": np.where(weights == weights.max(), 1.0, np.minimum(len(weights) * weights, 1.0)),
    }
    return weights if kind == "weights" else low + (high - low) * shares[kind]


def draw_goals(rng: np.random.Generator, count: int, low: float = -LIMIT, high: float = LIMIT) -> np.ndarray:
    """Draw goals near the front: each uniform in [low, high], then all but the smallest are set to `high`."""
    values = rng.uniform(low, high, count)
    smallest = values.argmin()
    return np.where(np.arange(count) == smallest, values, high)


@dataclass(frozen=True)
class ScoreScale:
    """Normalisation of a score: standardise, then divide what is above 0 by its upper quantile, below by the lower one.

    v = 4 z / q(1 - 1e-4) for z >= 0 and 4 z / |q(1e-4)| for z < 0, clipped to [-4, 4], with z = (score - mean) / std.
    """

    mean: float
    std: float
    lower: float
    upper: float

    @classmethod
    def measure(cls, scores: Sequence[float]) -> ScoreScale:
        """Measure it on scores that are not all equal."""
        values = np.asarray(scores, dtype=float)
        z = (values - values.mean()) / values.std()
        lower, upper = np.quantile(z, [_TAIL, 1 - _TAIL])
        return cls(float(values.mean()), float(values.std()), float(lower), float(upper))

    def __call__(self, score: float) -> float:
        z = (score - self.mean) / self.std
        return float(np.clip(LIMIT * z / (self.upper if z >= 0 else abs(self.lower)), -LIMIT, LIMIT))


class RewardGoals(Rollout):
    """RiC's two stages: logged answers, then also answers to prompts that ask for rewards near the front.

    Args:
        scores: names of the rewards.
        offline: what gives the logged answers, which no goals were stated for.
        play: what answers the prompts with goals.
        offline_iterations: iterations of the first stage, on logged answers alone.
        offline_fraction: probability that a prompt of the second stage is a logged one: 10k of 30k in the paper.
    """

    def __init__(
        self,
        scores: Sequence[str],
        offline: Rollout,
        play: Rollout,
        offline_iterations: int,
        offline_fraction: float = 1 / 3,
    ):
        check_fraction("rollout", offline_fraction=offline_fraction)
        check_at_least(1, "rollout", offline_iterations=offline_iterations)
        check_names(scores, "rollout")
        self.score_names, self.offline, self.play = tuple(scores), offline, play
        self.offline_iterations, self.offline_fraction = offline_iterations, offline_fraction

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        goals = {} if ctx.iteration < self.offline_iterations else dict(self._draw(prompts, ctx))
        logged = self.offline.collect([pair for pair in prompts if pair[0] not in goals], ctx)
        asked = [(slot, annotate(prompt, self.score_names, goals[slot])) for slot, prompt in prompts if slot in goals]
        episodes = logged + (self.play.collect(asked, ctx) if asked else [])
        plain = dict(prompts)
        for episode in episodes:
            if episode.group in goals:
                # the rewards that the answer has are stated for learning, in place of those that were asked for
                episode.prompt = plain[episode.group]
                episode.info["goals"] = [float(value) for value in goals[episode.group]]
        return sorted(episodes, key=lambda episode: (episode.group, episode.sample_index))

    def _draw(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[tuple[int, np.ndarray]]:
        pairs = []
        for slot, _ in prompts:
            rng = derive_rng("goals", ctx.seed, ctx.purpose, ctx.iteration, slot)
            if rng.random() >= self.offline_fraction:
                pairs.append((slot, draw_goals(rng, len(self.score_names))))
        return pairs


@dataclass
class AnnotateScores(StatefulTransform):
    """Put the normalised rewards of each answer into its prompt, and drop answers that are good at nothing.

    The scale of a score is measured on the answers of the first iteration of all processes in which they differ, and
    saved; until then the value is 0. The engine's log-probs are those of the prompt before, so that rows have version
    -1, as logged ones.

    Args:
        scores: names of the rewards.
        quantile: an answer stays if any reward is at least this quantile of the iteration's; 0 keeps all.
        after: iteration from which on answers are dropped.
    """

    scores: Sequence[str]
    quantile: float = 0.7
    after: int = 0
    scales: dict[str, ScoreScale] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        check_fraction("annotate_scores", quantile=self.quantile)
        check_names(self.scores, "annotate_scores")

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        rows = [[get_score(episode, name) for name in self.scores] for episode in episodes]
        everyone = np.asarray(ctx.collector.gather(rows), dtype=float).reshape(-1, len(self.scores))
        for name, column in zip(self.scores, everyone.T):
            if name not in self.scales and len(set(column)) > 1:
                self.scales[name] = ScoreScale.measure(column)
        if ctx.iteration >= self.after and len(everyone):
            limits = np.quantile(everyone, self.quantile, axis=0)
            pairs = [(e, row) for e, row in zip(episodes, rows) if np.any(np.asarray(row) >= limits)]
        else:
            pairs = list(zip(episodes, rows))
        return [self._label(episode, row, ctx) for episode, row in pairs]

    def _label(self, episode: Episode, row: Sequence[float], ctx: Context) -> Episode:
        if len(episode.turns) != 1:
            raise ValueError(f"annotate_scores: {episode.prompt.key!r} has {len(episode.turns)} rows, not one")
        values = [self.scales[n](score) if n in self.scales else 0.0 for n, score in zip(self.scores, row)]
        prompt = annotate(episode.prompt, self.scores, values)
        done = replace(
            episode.turns[0].completion,
            observation=ctx.policy.encode(prompt.observation),
            prompt_id=(episode.group, episode.sample_index),
            policy_version=-1,
        )
        return replace(episode, prompt=prompt, turns=[replace(episode.turns[0], completion=done)], source="replay")

    def state_dict(self) -> dict[str, Any]:
        return {name: [each.mean, each.std, each.lower, each.upper] for name, each in self.scales.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.scales = {name: ScoreScale(*map(float, numbers)) for name, numbers in state.items()}


class PreferencePrompts(Rollout):
    """Ask for the rewards that a preference maps to; `Prompt.info["preference"]` names it.

    Args:
        scores: names of the rewards.
        play: what answers the prompts.
        preferences: weights of the rewards, each summing to 1; the prompt in slot i has number i modulo their number.
            None draws one for each prompt and iteration, uniformly among those that sum to 1.
        mapping: how a preference becomes rewards, see `map_preference`.
    """

    def __init__(
        self,
        scores: Sequence[str],
        play: Rollout,
        preferences: Sequence[Sequence[float]] | None = None,
        mapping: Mapped = "l2",
    ):
        check_names(scores, "rollout")
        for weights in preferences or []:
            if len(weights) != len(scores) or min(weights) < 0 or abs(sum(weights) - 1) > 1e-6:
                raise ValueError(
                    f"rollout.preferences: a preference has {len(scores)} weights of at least 0 that sum to 1, got "
                    f"{list(weights)}"
                )
        self.score_names, self.play, self.preferences, self.mapping = tuple(scores), play, preferences, mapping

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        return self.play.collect([(slot, self._ask(slot, prompt, ctx)) for slot, prompt in prompts], ctx)

    def _ask(self, slot: int, prompt: Prompt, ctx: Context) -> Prompt:
        if self.preferences:
            weights = list(self.preferences[slot % len(self.preferences)])
        else:
            rng = derive_rng("preference", ctx.seed, ctx.purpose, ctx.iteration, slot)
            weights = [float(weight) for weight in rng.dirichlet(np.ones(len(self.score_names)))]
        values = map_preference(weights, self.mapping)
        asked = annotate(prompt, self.score_names, values)
        return replace(asked, info={**prompt.info, "preference": " ".join(f"{w:.3g}" for w in weights)})


@dataclass(frozen=True)
class PreferenceSum(Reward):
    """Linear scalarisation: sum_k p_k weights_k scores_k with the preference p that the prompt states.

    Args:
        weights: of the scores by name, in the order of the preference.
    """

    weights: dict[str, float]

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        preference = [float(word) for word in group[0].prompt.info.get("preference", "").split()]
        if len(preference) != len(self.weights):
            raise ValueError(
                f"{group[0].prompt.key!r} states no preference of {len(self.weights)} rewards; play it with "
                "rollout._target_=mmrl.methods.rewards.ric.PreferencePrompts"
            )
        pairs = list(zip(preference, self.weights.items()))
        return [sum(p * weight * get_score(episode, name) for p, (name, weight) in pairs) for episode in group]


def check_names(names: Sequence[str], part: str) -> None:
    """Refuse fewer than two different names of rewards."""
    if isinstance(names, str) or len(set(names)) < max(2, len(names)):
        raise ValueError(f"{part}.scores must name at least two different scores, got {names!r}")
