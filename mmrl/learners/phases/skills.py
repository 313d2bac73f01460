"""METRA: forward pass of the representation function and the skill reward."""

from __future__ import annotations

import torch
from torch import Tensor

from mmrl.batch import Batch
from mmrl.learners.phases.base import Phase, UpdateContext
from mmrl.learners.phases.output import Output
from mmrl.ops.representation import centred_one_hot, constraint_slack, skill_reward
from mmrl.types import PolicyOutput


def _transitions(
    batch: Batch, ctx: UpdateContext, representation: str, encoder: str, one_hot: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """phi(s), phi(s') and the skill z, each [N, K]."""
    policy, phi = ctx.models[encoder], ctx.models[representation]
    here = policy.features(batch.observation())
    there = policy.features({name[5:]: column for name, column in batch.items() if name.startswith("next.")})
    skill = phi.skill(here)
    return phi(here), phi(there), centred_one_hot(skill) if one_hot else skill


class SkillTransitions(Output):
    """METRA's forward pass on replayed transitions: extra["skill_reward"] and the constraint's extra["slack"], [N, 1].

    Args:
        epsilon: upper bound of the slack, METRA's relaxation constant.
        one_hot: skills are discrete, one-hot vectors, and not directions.
        representation: name of the representation function phi.
        multiplier: name of the Lagrange multiplier, whose logarithm is extra["log_multiplier"].
        encoder: name of the policy whose encoder computes the features.
    """

    gives = frozenset({"skill_reward", "slack", "log_multiplier"})

    def __init__(
        self,
        epsilon: float = 1e-3,
        one_hot: bool = False,
        representation: str = "representation",
        multiplier: str = "lagrange_multiplier",
        encoder: str = "policy",
    ):
        self.epsilon, self.one_hot, self.encoder = epsilon, one_hot, encoder
        self.representation, self.multiplier = representation, multiplier

    @property
    def models(self) -> frozenset[str]:
        return frozenset({self.representation, self.multiplier, self.encoder})

    def __call__(self, batch: Batch, ctx: UpdateContext) -> PolicyOutput:
        before, after, skill = _transitions(batch, ctx, self.representation, self.encoder, self.one_hot)
        reward = skill_reward(before, after, skill)[:, None]
        slack = constraint_slack(before, after, self.epsilon)[:, None]
        extra = {"skill_reward": reward, "slack": slack, "log_multiplier": ctx.models[self.multiplier].log}
        nothing = torch.zeros_like(reward)
        return PolicyOutput(nothing, nothing, extra=extra)


class SkillReward(Phase):
    """METRA's reward (phi(s') - phi(s)) . z under the current representation, in place of the simulator's.

    Args:
        one_hot: skills are discrete, one-hot vectors, and not directions.
        representation: name of the representation function phi.
        encoder: name of the policy whose encoder computes the features.
    """

    writes = frozenset({"reward"})

    def __init__(self, one_hot: bool = False, representation: str = "representation", encoder: str = "policy"):
        self.one_hot, self.representation, self.encoder = one_hot, representation, encoder

    @property
    def models(self) -> frozenset[str]:
        return frozenset({self.representation, self.encoder})

    @torch.no_grad()
    def __call__(self, batch: Batch, ctx: UpdateContext) -> Batch:
        reward = skill_reward(*_transitions(batch, ctx, self.representation, self.encoder, self.one_hot))
        ctx.log({"reward": reward.mean()})
        return batch.with_columns(reward=reward)
