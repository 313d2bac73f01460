"""Rollout of on-policy distillation: some prompts are answered by the policy, the others by demonstrations."""

from __future__ import annotations

from collections.abc import Sequence

from mmrl.core.errors import check_fraction
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Episode, Prompt, Turn
from mmrl.rollouts.base import Rollout
from mmrl.rollouts.offline.demonstrations import demonstration
from mmrl.rollouts.text.single_turn import SingleTurn


class OnPolicyMixture(Rollout):
    """Answer a fraction of the prompts, drawn anew in every iteration, by the policy and the others by demonstrations.

    Source: On-Policy Distillation of Language Models, 2023, algorithm 1, arXiv:2306.13649, which draws once a batch.

    Args:
        on_policy_fraction: probability that the policy answers a prompt, the paper's lambda: 0 is supervised
            distillation, 1 is on-policy distillation.
    """

    def __init__(self, on_policy_fraction: float = 0.5):
        check_fraction("rollout", on_policy_fraction=on_policy_fraction)
        self.on_policy_fraction = on_policy_fraction
        self._single_turn = SingleTurn()

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        on_policy = {slot for slot, _ in prompts if self._is_on_policy(slot, ctx)}
        off_policy = [(slot, prompt) for slot, prompt in prompts if slot not in on_policy]
        episodes = self._single_turn.collect([pair for pair in prompts if pair[0] in on_policy], ctx)
        decisions = ctx.task.demonstrations([prompt for _, prompt in off_policy]) if off_policy else []
        for (slot, prompt), steps in zip(off_policy, decisions):
            turns = [Turn(demonstration(raw, output, ctx)) for raw, output in steps]
            episodes.append(Episode(prompt, group=slot, sample_index=0, turns=turns, source="demo"))
        return sorted(episodes, key=lambda episode: (episode.group, episode.sample_index))

    def _is_on_policy(self, slot: int, ctx: Context) -> bool:
        draw = derive_rng("on_policy", ctx.seed, ctx.purpose, ctx.iteration, slot).random()
        return bool(draw < self.on_policy_fraction)
