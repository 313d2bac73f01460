"""RWFM: a flow policy imitates its own episodes in proportion to their reward.

Pfrommer, Huang and Sojoudi, Reinforcement Learning for Flow-Matching Policies, 2025, arXiv:2507.15073.

- weights of 0 and 1, for rewards of 0 and 1: `KeepSuccesses`, then `AsDemonstrations` for `objective=denoising`
- successes of earlier iterations: `mmrl.rows.replay.ReplayRows`
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mmrl.rollouts.offline.demonstrations import add_row_seeds, demonstrated_choices
from mmrl.transforms.base import EpisodeTransform
from mmrl.types import Context, Episode, Turn


@dataclass(frozen=True)
class AsDemonstrations(EpisodeTransform):
    """Makes every episode a demonstration of the actions that were executed; put `KeepSuccesses` before it.

    For policies whose choices are the steps of a chain: the loss is about the action that the chain led to, not about
    its steps. The sampled choices of other policies can be imitated as they are. Scores, rewards and observations stay.
    Source: Reinforcement Learning for Flow-Matching Policies, 2025, arXiv:2507.15073.
    """

    def writes(self) -> frozenset[str]:
        return frozenset({"row_seed"})

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        return [
            replace(
                episode,
                turns=add_row_seeds([_demonstrate(turn, episode, ctx) for turn in episode.turns], episode.group, ctx),
                source="demo",
            )
            for episode in episodes
        ]


def _demonstrate(turn: Turn, episode: Episode, ctx: Context) -> Turn:
    done = turn.completion
    action = ctx.policy.encode_demonstration(episode.prompt.observation, done.output)
    return replace(turn, completion=demonstrated_choices(action, done.observation, done.output))
