"""Rollouts of a recurrent policy for a replay buffer, which begin with uniform actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mmrl.core.types import Context, Episode, Prompt
from mmrl.rollouts.env.fixed_horizon import FixedHorizon
from mmrl.rollouts.env.recurrent import add_memory


class RecurrentReplayHorizon(FixedHorizon):
    """As `FixedHorizon`, with the memory of a recurrent policy, also while uniform actions stand in for those of it.

    The memory goes on over the end of an iteration and is empty in a new episode.
    """

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        """Segments with `horizon` turns per environment, as `FixedHorizon.collect`."""
        # before learning starts, the policy stands behind one of uniform actions
        with_memory = ctx if hasattr(ctx.policy, "memory_dims") else replace(ctx, policy=ctx.policy.actor)
        return super().collect(prompts, replace(ctx, task=add_memory(with_memory).task))
