"""Demonstrations in text environments: the environment's expert acts, and every turn is a row to imitate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mmrl.core.errors import check_fraction
from mmrl.core.rng import derive_rng
from mmrl.core.types import Completion, Context, Episode, Prompt
from mmrl.rollouts.offline.demonstrations import add_row_seeds, demonstration
from mmrl.rollouts.text.environment import EnvironmentRollout, RunningEpisode


class EnvironmentDemonstrations(EnvironmentRollout):
    """One episode of the environment's expert per prompt.

    Args:
        random_fraction: probability that a turn is a random action in place of the expert's, for a weak expert.
        options: those of `EnvironmentRollout`.
    """

    samples = False

    def __init__(self, random_fraction: float = 0.0, **options: Any):
        super().__init__(**options)
        check_fraction("rollout", random_fraction=random_fraction)
        self.random_fraction = random_fraction

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"row_seed"})

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        episodes = super().collect(prompts, replace(ctx, group_size=1))
        return [replace(e, source="demo", turns=add_row_seeds(e.turns, e.group, ctx)) for e in episodes]

    def sample(self, ready: Sequence[RunningEpisode], ctx: Context) -> list[Completion]:
        return [self._demonstrate(play, ctx) for play in ready]

    def _demonstrate(self, play: RunningEpisode, ctx: Context) -> Completion:
        assert play.environment is not None
        key = (ctx.seed, ctx.purpose, ctx.iteration, play.episode.group, len(play.actions))
        rng = derive_rng("demonstration", *key)
        expert = rng.random() >= self.random_fraction
        action = play.environment.expert_action() if expert else play.environment.random_action(rng)
        raw = play.observation(self.history, self.image_history)
        return demonstration(raw, self.extractor.write(action), ctx)
