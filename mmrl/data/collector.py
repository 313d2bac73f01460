"""PromptCollector: select prompts, collect their episodes and score them, for one iteration."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mmrl import parallel
from mmrl.curricula.base import Curriculum
from mmrl.groups import group_episodes
from mmrl.policies.base import Policy
from mmrl.rewards.base import Reward
from mmrl.rewards.scoring import Scorer
from mmrl.rollouts.base import Rollout
from mmrl.types import Context, Episode, Prompt, Task


@dataclass(frozen=True)
class Collected:
    """The result of one collection on this rank."""

    episodes: list[Episode]  # to learn from
    sampled: list[Episode]  # the episodes of the first prompts, before further sampling and transforms
    sampled_everywhere: list[Episode]  # `sampled` of all ranks, without tensors
    metrics: dict[str, float]
    policy: Policy  # with the weights that sampled


class PromptCollector(Scorer):
    """Selects prompts, runs the rollout, scores the episodes and measures the time that this took on this rank.

    Args:
        task: problems and their verifier.
        rollout: how prompts become episodes.
        reward: from named scores to one number per episode.
        curriculum: which prompts come next.
        ctx: of the iteration. `self.ctx` is the same with this collector in it.
    """

    def __init__(self, task: Task, rollout: Rollout, reward: Reward, curriculum: Curriculum, ctx: Context):
        super().__init__(task, reward)
        self.rollout, self.curriculum, self.ctx = rollout, curriculum, replace(ctx, collector=self)
        self.choices, self.episodes, self.scoring = 0, 0, 0.0  # the last in seconds
        self._next_slot = 0
        self._slots: dict[int, Prompt] = {}  # of this rank

    def collect_prompts(self, count: int) -> list[Episode]:
        indices = self.curriculum.select(count, self.ctx)
        slots = [(self._next_slot + i, index) for i, index in enumerate(indices)]
        self._next_slot += len(indices)
        mine = [(slot, self.task[index]) for slot, index in slots[self.ctx.rank :: self.ctx.world_size]]
        self._slots |= dict(mine)
        episodes = self._count(self.rollout.collect(mine, self.ctx) if mine else [])
        groups = list(group_episodes(parallel.gather([e.light() for e in episodes])).values())
        self.curriculum.observe(groups)
        self.rollout.observe(groups)
        return episodes

    def collect_samples(self, indices: Mapping[int, range]) -> list[Episode]:
        """Collect and score further episodes of this rank's prompts; the curriculum does not see them."""
        mine = [(slot, self._slots[slot]) for slot, wanted in indices.items() if wanted]
        episodes = self.rollout.collect(mine, replace(self.ctx, requested_indices=dict(indices))) if mine else []
        expected = sorted((slot, index) for slot, _ in mine for index in indices[slot])
        if sorted((episode.group, episode.sample_index) for episode in episodes) != expected:
            raise ValueError(
                f"data.rollout ({type(self.rollout).__name__}) cannot collect further episodes of a prompt: it numbers "
                "them by itself; leave transforms that ask for more episodes out of data.transforms"
            )
        return self._count(episodes)

    def metrics(self, seconds: float) -> dict[str, Any]:
        """What it took on all ranks: episodes, those that were dropped too; tokens a second of `seconds` of rollout."""
        rollout_seconds = seconds - self.scoring
        episodes, choices = (sum(parallel.gather([number])) for number in (self.episodes, self.choices))
        return {
            "rollout/episodes_collected": float(episodes),
            "rollout/tokens_per_second": choices / rollout_seconds,
            "time/rollout": rollout_seconds,
            "time/score": self.scoring,
        }

    def _count(self, episodes: list[Episode]) -> list[Episode]:
        """Score episodes that are learned from, and count them."""
        started = time.perf_counter()
        self.score(episodes)
        self.scoring += time.perf_counter() - started
        self.choices += sum(episode.tokens for episode in episodes)
        self.episodes += len(episodes)
        return episodes
