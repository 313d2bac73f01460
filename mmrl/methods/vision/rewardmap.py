"""RewardMap: reward correct answers and correct pieces of a route, weighted by the difficulty of map and question.

RewardMap: Tackling Sparse Rewards in Fine-grained Visual Reasoning via Multi-Stage Reinforcement Learning, 2025,
arXiv:2510.02240.

- R = w (10 correct + 0.5 detail): `difficulty_weight`, `DifficultyAwareReward`
- points for right pieces of a route: `detail` of the task transit
- yes/no questions, then counts, then routes: the curriculum `Stages`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mmrl.core.types import Episode, Task
from mmrl.rewards.compose import WeightedSum

MAPS = {"easy": 1.0, "middle": 1.2, "hard": 1.5}
"""Weights of the maps."""
REQUIRED = ("transfers", "detail_points")


def difficulty_weight(map_weight: float, transfers: int, transfer_weight: float = 0.5) -> float:
    """Weight of a question: that of its map, plus `transfer_weight` where a route needs at least one transfer.

    Source: RewardMap, 2025, difficulty-aware reward, arXiv:2510.02240; the numbers are those of the released code.
    """
    return map_weight + transfer_weight * (transfers > 0)


@dataclass(frozen=True)
class DifficultyAwareReward(WeightedSum):
    """Reward of an episode: w sum_k weights_k * scores_k, w as in `difficulty_weight`.

    It adds a score `points`: `detail` of a route times `info["detail_points"]`, the points of the right route, at most
    10; 0 for other questions. Source: RewardMap, 2025, arXiv:2510.02240.

    Args:
        weights: by name of the score: 10 for exact and 0.5 for points in the paper.
        map_weights: by the level of the map.
        info_key: entry of a prompt's info that names the level of its map, such as the part of a mixture.
        transfer_weight: added to the weight of routes that need a transfer.
    """

    map_weights: Mapping[str, float] = field(default_factory=lambda: dict(MAPS))
    info_key: str = "task"
    transfer_weight: float = 0.5

    def check_task(self, task: Task) -> None:
        info = task[0].info
        if missing := [name for name in (self.info_key, *REQUIRED) if name not in info]:
            raise ValueError(
                f"data.reward: prompts of task {task.name!r} have no info {missing[0]!r}; it is written for maps of "
                "several levels, a task=mixture of transit whose parts are named as in data.reward.map_weights"
            )

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        return [{"points": self._points(episode)} for episode in episodes]

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        return [self._weight(episode) * reward for episode, reward in zip(group, super().__call__(group))]

    def _points(self, episode: Episode) -> float:
        most = episode.prompt.info["detail_points"]  # 0 for questions that have no such score
        return most * episode.scores["detail"] if most else 0.0

    def _weight(self, episode: Episode) -> float:
        info = episode.prompt.info
        level = str(info[self.info_key])
        if level not in self.map_weights:
            raise ValueError(
                f"data.reward.map_weights has no {level!r}, the info {self.info_key!r} of {episode.prompt.key!r}; "
                f"it has {sorted(self.map_weights)}"
            )
        return difficulty_weight(self.map_weights[level], info["transfers"], self.transfer_weight)
