"""RWFM (reward-weighted flow matching): a flow policy imitates its own episodes in proportion to their reward.

Pfrommer, Huang and Sojoudi, Reinforcement Learning for Flow-Matching Policies, 2025, arXiv:2507.15073.

- weights of 0 and 1, for rewards of 0 and 1: `KeepSuccesses`, then `AsDemonstrations` for `objective=denoising`
- successes of earlier iterations: `mmrl.transforms.rows.replay.ReplayRows`
- the expert's episodes that the start has imitated: `AddExpertEpisodes`
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mmrl.core.errors import check_at_least
from mmrl.core.types import FIRST_ADDED_GROUP, Context, Episode, Turn
from mmrl.rollouts.offline.demonstrations import Demonstrations, add_row_seeds, demonstrated_choices
from mmrl.transforms.base import EpisodeTransform


@dataclass(frozen=True)
class AsDemonstrations(EpisodeTransform):
    """Turns every episode into a demonstration of its executed actions; put `KeepSuccesses` before it.

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


class AddExpertEpisodes(EpisodeTransform):
    """Adds the expert's episodes of the task's first `count` problems in every iteration.

    They are those that `curriculum=fixed` with the same `count` gives a cloned start, so that it does not forget what
    its own successes do not show. The expert plays them once in a run; with several processes each has its share.

    Args:
        count: problems.
    """

    def __init__(self, count: int):
        check_at_least(1, "add_expert_episodes", count=count)
        self.count = count
        self._expert = Demonstrations(cache_episodes=True)

    def writes(self) -> frozenset[str]:
        return frozenset({"row_seed"})

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        problems = range(min(self.count, len(ctx.task)))[ctx.rank :: ctx.world_size]
        return [*episodes, *self._expert.collect([(FIRST_ADDED_GROUP + i, ctx.task[i]) for i in problems], ctx)]
