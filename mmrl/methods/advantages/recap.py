"""RECAP: weights of several objectives by the convergence and the instability of each.

Beyond Reasoning Gains: Mitigating General Capabilities Forgetting in Large Reasoning Models, 2025, arXiv:2510.21978.

- weights from the histories of the objectives: `objective_weights`
- a group advantage of each score, added with these weights: `WeightedObjectives`
- problems of general tasks beside those of reasoning: `task=mixture`
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from mmrl.core.errors import check_fraction
from mmrl.core.groups import get_score
from mmrl.core.types import Context, Episode
from mmrl.ops.advantage import group_advantage
from mmrl.transforms.base import StatefulTransform


def objective_weights(
    histories: Sequence[Sequence[float]],
    window: int,
    temperature: float = 5.0,
    instability_weight: float = 0.5,
    epsilon: float = 1e-8,
) -> list[float]:
    """Weights of K objectives, with sum K: K softmax(s / temperature), s = (1 - w) c + w i, w `instability_weight`.

    c = mu / mu' is the convergence, mu and mu' the means of the last `window` values and of those before: 1 where an
    objective stalls, less where it improves. i = std / (mu + mu') is the instability, std that of the last values. All
    weights are 1 until there are 2 `window` values. Source: RECAP, 2025, arXiv:2510.21978, and its released code.

    Args:
        histories: of each objective, a loss >= 0 at each iteration.
        window: number of values in a mean.
        temperature: of the softmax.
        instability_weight: share of the instability in the score.
        epsilon: is added to mu and mu' in the denominators.
    """
    if any(len(history) < 2 * window for history in histories):
        return [1.0] * len(histories)
    # (objectives, window) the last `window` values of each history, and the `window` values before them
    recent, before = (
        np.array([h[len(h) - end : len(h) - end + window] for h in histories]) for end in (window, 2 * window)
    )
    # (objectives,) means of both windows, and the population std of the last one
    mu, previous, std = recent.mean(1), before.mean(1), recent.std(1)
    # (objectives,) convergence plus instability; epsilon keeps both finite where a loss is 0
    score = (1 - instability_weight) * mu / (previous + epsilon)
    score = (score + instability_weight * std / (mu + previous + epsilon)) / temperature
    # softmax times the number of objectives, so that equal weights are 1; the maximum is subtracted against overflow
    odds = np.exp(score - score.max())
    return (len(histories) * odds / odds.sum()).tolist()


@dataclass(frozen=True)
class WeightedObjectives(StatefulTransform):
    """Replace rewards by the sum over scores of their group advantages times `objective_weights`, divided by K.

    r_i = (1 / K) sum_k w_k (s_ki - mean_k) / std_k, mean and std over the group: on the policy's own samples the
    gradient is that of one loss for each objective. The loss that is followed is 1 - the mean score over the episodes
    of all processes. Leave the rewards as they are afterwards: group_advantage with baseline and scale null. Source:
    RECAP, 2025, arXiv:2510.21978.

    Args:
        score_names: of the objectives, in [0, 1]; "reward" is the reward itself.
        window: see `objective_weights`.
        temperature: of the softmax.
        instability_weight: share of the instability in the score.
        epsilon: keeps the weight of an objective that reached its end finite, in units of the score.
    """

    score_names: Sequence[str] = ("exact", "format")
    window: int = 10
    temperature: float = 5.0
    instability_weight: float = 0.5
    epsilon: float = 1e-3
    _histories: dict[str, list[float]] = field(default_factory=dict, init=False, repr=False)

    min_group_size = 2

    def __post_init__(self) -> None:
        if not self.score_names or self.window < 1 or not (self.temperature > 0 and self.epsilon > 0):
            raise ValueError(
                "weighted_objectives: need a name in score_names, window >= 1, temperature > 0 and epsilon > 0, got "
                f"{list(self.score_names)}, {self.window}, {self.temperature} and {self.epsilon}"
            )
        check_fraction("weighted_objectives", instability_weight=self.instability_weight)

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        local_scores = [tuple(get_score(episode, name) for name in self.score_names) for episode in episodes]
        everyone = sorted(ctx.collector.gather(local_scores))  # in one order, however many processes there are
        if everyone:
            self._extend_histories(np.array(everyone))
        histories = [self._histories.get(name, []) for name in self.score_names]
        weights = objective_weights(histories, self.window, self.temperature, self.instability_weight, self.epsilon)
        if not episodes:
            return episodes
        group = torch.tensor([episode.group for episode in episodes])
        each = [group_advantage(scores, group) for scores in torch.tensor(local_scores, dtype=torch.float64).unbind(1)]
        total = torch.stack([weight * advantage for weight, advantage in zip(weights, each)]).mean(0)
        return [replace(episode, reward=reward) for episode, reward in zip(episodes, total.tolist())]

    def _extend_histories(self, scores: np.ndarray) -> None:
        for name, mean, low, high in zip(self.score_names, scores.mean(0), scores.min(0), scores.max(0)):
            if not (math.isfinite(mean) and 0 <= low <= high <= 1):
                raise ValueError(
                    f"weighted_objectives follows scores in [0, 1], but {name!r} is from {low} to {high}; "
                    "correct data.transforms.*.score_names or the score"
                )
            self._histories[name] = [*self._histories.get(name, []), 1 - float(mean)][-2 * self.window :]

    def state_dict(self) -> dict[str, Any]:
        return {name: list(history) for name, history in self._histories.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._histories.clear()
        self._histories.update({name: list(history) for name, history in state.items()})
