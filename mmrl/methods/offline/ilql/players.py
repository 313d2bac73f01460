"""Logs of mixed quality: scripted players of several strengths, and the best episodes of a log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mmrl.core.errors import check_interval
from mmrl.core.groups import get_score
from mmrl.core.types import Completion, Context, Episode
from mmrl.rollouts.text.environment_demonstrations import EnvironmentDemonstrations
from mmrl.rollouts.text.environment_episode import EnvironmentEpisode
from mmrl.transforms.base import EpisodeTransform


class MixedPlayers(EnvironmentDemonstrations):
    """One episode per prompt, by scripted players of several strengths in turn.

    Args:
        random_fractions: of each player the probability that a turn is a random action in place of the expert's.
        options: those of `EnvironmentRollout`.
    """

    def __init__(self, random_fractions: Sequence[float] = (0.2, 0.6, 1.0), **options: Any):
        super().__init__(**options)
        if not random_fractions:
            raise ValueError("rollout.random_fractions is empty; give at least one player")
        self.players = [EnvironmentDemonstrations(fraction, **options) for fraction in random_fractions]

    def sample(self, ready: Sequence[EnvironmentEpisode], ctx: Context) -> list[Completion]:
        return [self.players[play.episode.group % len(self.players)].sample([play], ctx)[0] for play in ready]


@dataclass(frozen=True)
class KeepTopReturns(EpisodeTransform):
    """Filtered behaviour cloning: keeps this fraction of the process's episodes, those of the highest score.

    Ties at the border are kept in the order of the log. Source: LMRL-Gym, 2023, arXiv:2311.18232.

    Args:
        fraction: in (0, 1]; at least one episode is kept.
        score_name: the score of whole episodes, the sum of the rewards of their turns.
    """

    fraction: float = 0.3
    score_name: str = "return"

    def __post_init__(self) -> None:
        check_interval("KeepTopReturns", "(0, 1]", fraction=self.fraction)

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        count = max(1, round(self.fraction * len(episodes)))
        order = sorted(range(len(episodes)), key=lambda i: -get_score(episodes[i], self.score_name))
        return [episodes[i] for i in sorted(order[:count])]
