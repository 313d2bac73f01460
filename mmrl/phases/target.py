"""What a critic is fitted to: what was paid, and what the policy would get from there on."""

from __future__ import annotations

import torch

from mmrl.batch import Batch
from mmrl.phases.base import Phase, Turn


class BellmanTarget(Phase):
    """R = reward + discount * (min_k Q_k(s', a') - price * log pi(a'|s')), with a' what the actor would do in s'.

    The columns `reward` and `discount` come from replay, where discount is 0 after a terminal state only.

    Args:
        critic: name of the critics that judge, usually slow copies.
        actor: name of the policy that chooses a'.
        senses: name of the policy through whose senses both see.
        price: name of the price of certainty; None for none.
        smoothing: standard deviation of noise on a', with the box scaled to [-1, 1]; averages over similar actions.
        within: largest size of that noise.
    """

    writes = frozenset({"returns"})
    reads = frozenset({"reward", "discount"})

    def __init__(
        self,
        critic: str = "slow_critic",
        actor: str = "policy",
        senses: str = "policy",
        price: str | None = None,
        smoothing: float = 0.0,
        within: float = 0.5,
    ):
        self.critic, self.actor, self.senses, self.price = critic, actor, senses, price
        self.smoothing, self.within = smoothing, within

    @property
    def models(self) -> frozenset[str]:
        return frozenset({self.critic, self.actor, self.senses} | ({self.price} if self.price else set()))

    def check(self) -> None:
        super().check()
        if self.smoothing < 0 or self.within <= 0:
            raise ValueError(f"smoothing must be >= 0 and within > 0, got {self.smoothing} and {self.within}")

    @torch.no_grad()
    def __call__(self, batch: Batch, turn: Turn) -> Batch:
        actor = turn.models[self.actor]
        following = {name[5:]: column for name, column in batch.items() if name.startswith("next.")}
        features = turn.models[self.senses].features(following)
        proposal = actor.propose(features, turn.normal(len(features), actor.actions))
        action = proposal.action
        if self.smoothing:
            noise = self.smoothing * turn.normal(len(features), actor.actions)
            action = (action + noise.clamp(-self.within, self.within)).clamp(-1, 1)
        value = turn.models[self.critic](features, action).amin(dim=-1)  # [N, 1]
        if self.price is not None:
            value = value - turn.models[self.price]() * proposal.logprobs
        return batch.with_columns(returns=batch["reward"][:, None] + batch["discount"][:, None] * value)
