"""Bellman targets of critics."""

from __future__ import annotations

import torch

from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least, check_positive
from mmrl.learners.phases.base import Phase, UpdateContext


class BellmanTarget(Phase):
    """TD target for critics: R = reward + discount * (min_k Q_k(s', a') - alpha * log pi(a'|s')), with a' ~ pi in s'.

    The columns `reward` and `discount` come from the replay buffer, where discount is 0 after a terminal state only.

    Args:
        critic: name of the critics that value s', usually target networks.
        actor: name of the policy that samples a'; TD3's is a target network.
        encoder: name of the policy whose encoder computes the features of both.
        ent_coef: name of the entropy coefficient alpha; None for no entropy bonus.
        target_policy_noise: std of the noise on a', with actions scaled to [-1, 1] (target policy smoothing in TD3).
        target_noise_clip: largest magnitude of that noise.
    """

    def __init__(
        self,
        critic: str = "target_critic",
        actor: str = "policy",
        encoder: str = "policy",
        ent_coef: str | None = None,
        target_policy_noise: float = 0.0,
        target_noise_clip: float = 0.5,
    ):
        self.critic, self.actor, self.encoder, self.ent_coef = critic, actor, encoder, ent_coef
        self.target_policy_noise, self.target_noise_clip = target_policy_noise, target_noise_clip

    def reads(self) -> frozenset[str]:
        return frozenset({"reward", "discount"})

    def writes(self) -> frozenset[str]:
        return frozenset({"returns"})

    def models(self) -> frozenset[str]:
        return frozenset({self.critic, self.actor, self.encoder} | ({self.ent_coef} if self.ent_coef else set()))

    def check(self) -> None:
        super().check()
        check_at_least(0, type(self).__name__, target_policy_noise=self.target_policy_noise)
        check_positive(type(self).__name__, target_noise_clip=self.target_noise_clip)

    @torch.no_grad()
    def __call__(self, batch: Batch, ctx: UpdateContext) -> Batch:
        actor = ctx.models[self.actor]
        next_observation = {name[5:]: column for name, column in batch.items() if name.startswith("next.")}
        features = ctx.models[self.encoder].features(next_observation)
        sample = actor.rsample(features, ctx.normal(len(features), actor.actions))
        action = sample.action
        if self.target_policy_noise:
            noise = self.target_policy_noise * ctx.normal(len(features), actor.actions)
            action = (action + noise.clamp(-self.target_noise_clip, self.target_noise_clip)).clamp(-1, 1)
        value = ctx.models[self.critic](features, action).amin(dim=-1)  # [N, 1]
        if self.ent_coef is not None:
            value = value - ctx.models[self.ent_coef]() * sample.logprobs
        return batch.with_columns(returns=batch["reward"][:, None] + batch["discount"][:, None] * value)
