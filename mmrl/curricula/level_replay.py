"""Prioritised Level Replay (PLR): play again the levels of the highest estimated regret.

Prioritized Level Replay, 2021, arXiv:2010.03934; scores of regret: Replay-Guided Adversarial Environment Design, 2021,
arXiv:2110.02439.

- the score of a level: `max_return_regret`
- probabilities by rank and by age: `rank_probs`, `staleness_probs`
- the curriculum: `LevelReplay`
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mmrl.core.errors import check_at_least, check_fraction, check_positive
from mmrl.core.types import Episode
from mmrl.curricula.levels import LevelCurriculum


def max_return_regret(best: float, returns: Sequence[float]) -> float:
    """Best return so far at a level less the mean return of its last visit: regret against the policy's own best.

    Source: Replay-Guided Adversarial Environment Design, 2021, arXiv:2110.02439, section 3.1 (maximum Monte Carlo),
    with the mean return in place of the predicted values.
    """
    return best - sum(returns) / len(returns)


def rank_probs(scores: np.ndarray, temperature: float) -> np.ndarray:
    """Probabilities in proportion to rank(score)^(-1 / temperature), [n]; the highest score has rank 1.

    Of equal scores the earlier one has the lower rank.
    Source: Prioritized Level Replay, 2021, arXiv:2010.03934, equation 1.
    """
    ranks = np.empty(len(scores))
    ranks[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
    weights = ranks ** (-1 / temperature)
    return weights / weights.sum()


def staleness_probs(visits: np.ndarray, now: int) -> np.ndarray:
    """Probabilities in proportion to the draws since the last visit, now - visits, [n]; uniform where all are 0.

    Source: Prioritized Level Replay, 2021, arXiv:2010.03934, equation 2.
    """
    ages = now - visits
    return ages / ages.sum() if ages.sum() > 0 else np.full(len(visits), 1 / len(visits))


class LevelReplay(LevelCurriculum):
    """PLR: with a probability a stored level of high regret or great age is played again, else a uniform new one.

    Of up to `capacity` levels the best return so far and the regret of the last visit are kept
    (`max_return_regret`); a new level takes the place of that with the lowest score, if its own is at least as high. A
    stored level is drawn from (1 - staleness) `rank_probs` + staleness `staleness_probs`. One episode at a new level
    shows no regret, so groups of several episodes (`data.group_size`, rollout=env) tell more.
    Source: Prioritized Level Replay, 2021, algorithm 1, arXiv:2010.03934.

    Args:
        replay_prob: probability of a stored level, once there are `least` of them.
        capacity: most stored levels.
        least: stored levels before any is replayed.
        temperature: of the probabilities by rank; the smaller, the more the first ranks are drawn.
        staleness: weight of the probabilities by age.
        score_name: what regret is measured of; "return": the sum of the rewards of the whole episode.
    """

    def __init__(
        self,
        replay_prob: float = 0.5,
        capacity: int = 1000,
        least: int = 100,
        temperature: float = 0.1,
        staleness: float = 0.1,
        score_name: str = "return",
    ):
        super().__init__(score_name)
        check_fraction("curriculum", replay_prob=replay_prob, staleness=staleness)
        check_at_least(1, "curriculum", capacity=capacity, least=least)
        check_positive("curriculum", temperature=temperature)
        if least > capacity:
            raise ValueError(f"curriculum.least={least} must not exceed curriculum.capacity={capacity}")
        self.replay_prob, self.capacity, self.least = replay_prob, capacity, least
        self.temperature, self.staleness = temperature, staleness
        self.levels: dict[tuple[float, ...], list[float]] = {}  # by level: best return, score, number of the last visit
        self.visits = 0  # groups of episodes so far

    def draw(self, dims: int, rng: np.random.Generator) -> np.ndarray:
        if len(self.levels) < self.least or rng.random() >= self.replay_prob:
            return rng.random(dims)
        stored = np.array(list(self.levels.values()))  # [n, 3]
        by_rank = rank_probs(stored[:, 1], self.temperature)
        by_age = staleness_probs(stored[:, 2], self.visits)
        probs = (1 - self.staleness) * by_rank + self.staleness * by_age
        return np.array(list(self.levels)[int(rng.choice(len(stored), p=probs))])

    def observe(self, groups: Sequence[Sequence[Episode]]) -> None:
        for group in sorted(groups, key=lambda group: group[0].group):
            ended = [episode for episode in group if episode.ended in ("done", "time")]
            if ended:
                self.visit(self._point(ended[0]), [self._score(episode) for episode in ended])

    def visit(self, level: np.ndarray, returns: Sequence[float]) -> None:
        """Learn from the returns of the episodes of one visit to a level of the unit cube, [D]."""
        self.visits += 1
        key = tuple(np.round(level, 9).tolist())  # a replayed level is the same point
        best = max(*returns, self.levels[key][0]) if key in self.levels else max(returns)
        score = max_return_regret(best, returns)
        if key not in self.levels and len(self.levels) == self.capacity:
            weakest = min(self.levels, key=lambda each: self.levels[each][1])
            if score < self.levels[weakest][1]:
                return
            del self.levels[weakest]
        self.levels[key] = [best, score, float(self.visits)]

    def state_dict(self) -> dict[str, Any]:
        levels = [[list(level), list(values)] for level, values in self.levels.items()]
        return {**super().state_dict(), "levels": levels, "visits": self.visits}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.levels = {tuple(level): list(values) for level, values in state["levels"]}
        self.visits = state["visits"]
