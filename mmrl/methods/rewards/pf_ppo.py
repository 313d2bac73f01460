"""PF-PPO: train on the samples whose reward is reliable, the extremes of a reward model's scores.

Policy Filtration for RLHF to Mitigate Noise in Reward Models, 2024, arXiv:2409.06957.

- of each prompt's answers the best one, the best and a random one, or the best and the worst: `PolicyFiltration`
- the released form, which draws rows of the batch with weights: `filter_weights`, `ResampleRows`
- how well scores of the filtered answers explain the true ones, by which a strategy is chosen: `FilteredCorrelation`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from mmrl.core.batch import Batch
from mmrl.core.errors import check_positive
from mmrl.core.groups import get_score, group_episodes
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Episode
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.metrics.finished_episodes import count_errors, drop_errors
from mmrl.transforms.base import EpisodeTransform
from mmrl.transforms.rows.base import RowTransform

Strategy = Literal["best", "best_random", "best_worst"]
Resampling = Literal["power", "max_min", "max_random"]


def select_reliable(scores: Sequence[float], strategy: Strategy, rng: np.random.Generator) -> list[int]:
    """Numbers of the answers of one prompt that are kept; of equal scores the first is the best and the last the worst.

    Source: Policy Filtration, 2024, section 4.2, arXiv:2409.06957: BoN, BR and BW.
    """
    best = max(range(len(scores)), key=lambda i: scores[i])
    others = [i for i in range(len(scores)) if i != best]
    if strategy == "best" or not others:
        return [best]
    if strategy == "best_random":
        return sorted([best, others[int(rng.integers(len(others)))]])
    return sorted([best, min(reversed(others), key=lambda i: scores[i])])


def filter_weights(scores: np.ndarray, method: Resampling, exponent: float = 2.0) -> np.ndarray:
    """Probabilities of drawing the rows of a batch, in the order of their scores: all [N].

    power: |score|^exponent; max_min: 1 for the largest and the smallest scores, else 0; max_random: 0.4 for the largest
    and 0.1 for the others. They are divided by their sum; all zero is uniform. Source: verl, compute_pf_ppo_reweight.
    """
    largest, smallest = scores == scores.max(), scores == scores.min()
    if method == "power":
        weights = np.abs(scores) ** exponent
    elif method == "max_min":
        weights = (largest | smallest).astype(float)
    else:
        weights = np.where(largest, 0.4, 0.1)
    return weights / weights.sum() if weights.sum() > 0 else np.full(len(scores), 1 / len(scores))


@dataclass(frozen=True)
class PolicyFiltration(EpisodeTransform):
    """Keeps of each prompt's answers those whose reward is reliable, before advantages and values are computed.

    Source: Policy Filtration, 2024, section 4.2, arXiv:2409.06957.

    Args:
        strategy: best (BoN), best_random (BR: the best and another one), or best_worst (BW).
        score_name: "reward", or the name of a score.
    """

    strategy: Strategy = "best_worst"
    score_name: str = "reward"

    min_group_size = 2

    def __post_init__(self) -> None:
        if self.strategy not in ("best", "best_random", "best_worst"):
            raise ValueError(
                f"policy_filtration.strategy must be best, best_random or best_worst, got {self.strategy!r}"
            )

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        kept: list[Episode] = []
        for key, group in group_episodes(episodes).items():
            rng = derive_rng(ctx.seed, "policy_filtration", ctx.iteration, key)
            kept += [
                group[i] for i in select_reliable([get_score(e, self.score_name) for e in group], self.strategy, rng)
            ]
        return kept


@dataclass(frozen=True)
class ResampleRows(RowTransform):
    """Draws as many rows as there are, with replacement and weights of their rewards, once advantages are known.

    With several processes the weights are those of all rows, and each trains on its own rows that were drawn. It is for
    completions of one row. Source: verl, compute_pf_ppo_reweight_data.

    Args:
        method: power, max_min or max_random; see `filter_weights`.
        exponent: of method=power.
    """

    method: Resampling = "power"
    exponent: float = 2.0

    def __post_init__(self) -> None:
        check_positive("resample_rows", exponent=self.exponent)
        if self.method not in ("power", "max_min", "max_random"):
            raise ValueError(f"resample_rows.method must be power, max_min or max_random, got {self.method!r}")

    def reads(self) -> frozenset[str]:
        return frozenset({"episode_reward", "group", "episode", "step"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        if (batch["step"] > 0).any():
            raise ValueError("resample_rows draws completions of one row; leave it out of data.rows here")
        columns = [batch[name].numpy().astype(np.float64) for name in ("group", "episode", "episode_reward")]
        parts = ctx.collector.gather([(ctx.rank, np.stack(columns))])
        owner = np.concatenate([np.full(part.shape[1], rank) for rank, part in parts])
        place = np.concatenate([np.arange(part.shape[1]) for _, part in parts])  # in its process
        group, episode, reward = np.concatenate([part for _, part in parts], axis=1)
        if not len(owner):
            return batch
        order = np.lexsort((episode, group))  # the same on any number of processes
        rng = derive_rng(ctx.seed, "resample_rows", ctx.iteration)
        weights = filter_weights(reward[order], self.method, self.exponent)
        sample = order[np.sort(rng.choice(len(order), size=len(order), p=weights))]
        return batch.select(torch.from_numpy(place[sample[owner[sample] == ctx.rank]]))


def determination(
    scores: Sequence[float],
    truth: Sequence[float],
) -> float:
    """Squared correlation R^2 of scores and true scores; 0 where one of them is constant."""
    x, y = np.asarray(scores, dtype=float), np.asarray(truth, dtype=float)
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    return float(np.corrcoef(x, y)[0, 1] ** 2)


@dataclass(frozen=True)
class FilteredCorrelation(Evaluator):
    """R^2 between a reward model's scores and the true ones, over all answers and over those of each strategy.

    Source: Policy Filtration, 2024, section 4.3, arXiv:2409.06957.

    Args:
        proxy: "reward", or the name of the reward model's score.
        gold: name of the true one.
    """

    proxy: str = "reward"
    gold: str = "gold"

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        groups = list(group_episodes(drop_errors(episodes)).values())
        results = {"all": self._correlate([episode for group in groups for episode in group])}
        for strategy in ("best", "best_random", "best_worst"):
            samples = []
            for number, group in enumerate(groups):
                rng = derive_rng("filtered_correlation", strategy, number)
                samples += [group[i] for i in select_reliable([get_score(e, self.proxy) for e in group], strategy, rng)]
            results[strategy] = self._correlate(samples)
        return {**results, "errors": count_errors(episodes)}

    def _correlate(self, episodes: Sequence[Episode]) -> float:
        return determination([get_score(e, self.proxy) for e in episodes], [get_score(e, self.gold) for e in episodes])
