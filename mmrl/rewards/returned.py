"""Reward of episodes whose agent returns it."""

from __future__ import annotations

from collections.abc import Sequence

from mmrl.core.types import Episode
from mmrl.rewards.base import Reward


class ReturnedReward(Reward):
    """Reward of an episode: the number that its agent returned (rollout=agent).

    The number is the score `agent/reward`; further numbers NAME that the agent returned are scores `agent/NAME`.
    """

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        return [{f"agent/{name}": value for name, value in _read(episode).items()} for episode in episodes]

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        return [_read(episode)["reward"] for episode in group]


def _read(episode: Episode) -> dict[str, float]:
    """The numbers that the agent of an episode returned, by name."""
    if "agent" not in episode.info:
        raise ValueError(
            f"reward=agent: no agent played {episode.prompt.key!r}; it needs rollout=agent, and for held-out episodes "
            "evaluation=agent"
        )
    return episode.info["agent"]
