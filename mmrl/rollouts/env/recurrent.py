"""Rollouts that carry the memory of a recurrent policy from decision to decision."""

from __future__ import annotations

from collections.abc import Sequence

from mmrl.core.types import Context, Episode, Prompt
from mmrl.rollouts.base import simulator_of
from mmrl.rollouts.env.episodic import EpisodicRollout
from mmrl.rollouts.env.fixed_horizon import FixedHorizon
from mmrl.rollouts.env.memory import MemorySim
from mmrl.rollouts.exchange import exchange_sim


def add_memory(ctx: Context) -> Context:
    """Return the context with a simulator that observes the memory of the policy; the same for one without a memory."""
    dims = getattr(ctx.policy, "memory_dims", 0)
    if not dims:
        return ctx
    return exchange_sim(ctx, MemorySim(simulator_of(ctx.task, "rollout=recurrent"), dims))


class RecurrentFixedHorizon(FixedHorizon):
    """As `FixedHorizon`; the policy's memory goes on over the end of an iteration and is empty in a new episode.

    A segment begins with the memory that its first decision was made with, so that learning can unroll it from there.
    """

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        return super().collect(prompts, add_memory(ctx))


class RecurrentEpisodic(EpisodicRollout):
    """As `EpisodicRollout`: whole episodes, each of which begins with an empty memory."""

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        return super().collect(prompts, add_memory(ctx))
