"""RLPR: reward a completion by the probability of the reference answer after the policy's own reasoning.

RLPR: Extrapolating RLVR to General Domains without Verifiers, 2025, arXiv:2506.18254.

- mean probability with the reasoning minus that without, at least 0: `ProbabilityReward`
- prompts whose rewards differ too little are dropped, by a moving average: `FilterRewardStd`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mmrl.core.errors import check_at_least, check_interval
from mmrl.core.groups import group_episodes
from mmrl.core.types import Context, Episode
from mmrl.transforms.answer_splice import (
    Splice,
    answer_probabilities,
    mean_probability,
    reference_answer,
    split_reasoning,
)
from mmrl.transforms.base import EpisodeTransform, StatefulTransform


@dataclass(frozen=True)
class ProbabilityReward(EpisodeTransform):
    """Replaces the reward by the probability of the reference answer after the completion's reasoning.

    The completion's answer is replaced by the reference answer, the current policy scores it in one pass, and
    r = (1 - w) max(0, B - A) + w f, where B is the mean probability of the answer's tokens, A the same without the
    reasoning, and f is 1 if the completion has a marker. A completion without one earns 0. The scores of the verifier
    stay for reports, and curricula see its reward. Score `probability` is max(0, B - A).

    Source: RLPR, 2025, probability reward and debiasing, arXiv:2506.18254.

    Args:
        marker: text after whose last occurrence the answer stands.
        format_weight: w, of the format.
        debias: subtract A.
        rows: per forward pass.
    """

    marker: str = "\n"
    format_weight: float = 0.1
    debias: bool = True
    rows: int = 64

    def __post_init__(self) -> None:
        if not self.marker or not 0 <= self.format_weight <= 1 or self.rows < 1:
            raise ValueError(
                "probability_reward: need a marker, format_weight in [0, 1] and rows >= 1, got "
                f"{self.marker!r}, {self.format_weight} and {self.rows}"
            )

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        read = [self._splice(episode) for episode in episodes]
        scores = map(mean_probability, answer_probabilities([splice for splice in read if splice], ctx, self.rows))
        baselines = self._score_alone(episodes, ctx) if self.debias else {}
        for episode, splice in zip(episodes, read):
            gain = max(0.0, next(scores) - baselines.get(episode.group, 0.0)) if splice else 0.0
            episode.scores = {**episode.scores, "probability": gain}
            episode.reward = (1 - self.format_weight) * gain + self.format_weight * float(splice is not None)
        return episodes

    def _splice(self, episode: Episode) -> Splice | None:
        if not isinstance(episode.output, str):
            raise ValueError(f"probability_reward reads text, but {episode.prompt.key!r} was answered by actions")
        reasoning = split_reasoning(episode.output, self.marker)
        answer = reference_answer(episode.prompt, "probability_reward")
        return Splice(episode.prompt, reasoning, answer) if reasoning else None

    def _score_alone(self, episodes: Sequence[Episode], ctx: Context) -> dict[int, float]:
        """Mean probability of the reference answer of each group without reasoning."""
        prompts = {slot: group[0].prompt for slot, group in group_episodes(episodes).items()}
        splices = [
            Splice(prompt, self.marker, reference_answer(prompt, "probability_reward")) for prompt in prompts.values()
        ]
        return dict(zip(prompts, map(mean_probability, answer_probabilities(splices, ctx, self.rows))))


@dataclass(frozen=True)
class FilterRewardStd(StatefulTransform):
    """Drops groups with a standard deviation of rewards below a fraction of its moving average over iterations.

    m <- retain m + (1 - retain) mean std of the iteration's groups, begun with the mean of iteration `start`; from
    iteration `begin` on groups need a population std of at least fraction * m. Source: RLPR, 2025, standard deviation
    filtering, arXiv:2506.18254.

    Args:
        retain: weight of the old average.
        fraction: of the average below which a group is dropped.
        start: iteration whose mean begins the average, counted from 0.
        begin: first iteration that drops groups.
    """

    retain: float = 0.99
    fraction: float = 0.5
    start: int = 5
    begin: int = 10
    _average: dict[str, float] = field(default_factory=dict, init=False, repr=False)  # empty before `start`

    min_group_size = 2

    def __post_init__(self) -> None:
        check_interval("filter_reward_std", "[0, 1)", retain=self.retain)
        check_at_least(0, "filter_reward_std", fraction=self.fraction)
        check_interval("filter_reward_std", f"[0, {self.begin}]", start=self.start)

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        groups = group_episodes(episodes)
        # population std of each group's rewards; `everyone` has those of all processes, in one order
        stds = {slot: float(np.std([episode.reward for episode in group])) for slot, group in groups.items()}
        everyone = [std for _, std in sorted(ctx.collector.gather(list(stds.items())))]
        if everyone and ctx.iteration >= self.start:
            mean = float(np.mean(everyone))
            old = self._average.get("std", mean)
            self._average["std"] = self.retain * old + (1 - self.retain) * mean
        if ctx.iteration < self.begin:
            return episodes
        limit = self.fraction * self._average.get("std", 0.0)
        return [episode for slot, group in groups.items() if stds[slot] >= limit for episode in group]

    def state_dict(self) -> dict[str, Any]:
        return dict(self._average)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._average.clear()
        self._average.update(state)
