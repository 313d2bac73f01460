"""AWAC: an actor-critic whose actor imitates the recorded actions by their advantage, offline and then online.

AWAC: Accelerating Online Reinforcement Learning with Offline Datasets, 2020, arXiv:2006.09359, algorithm 1, whose order
is in conf/phases/awac.yaml.

- A(s, a) = Q(s, a) - E_{a' ~ pi} Q(s, a') (equation 9): `PolicyAdvantage`
- L_pi = -E [exp(A / lambda) log pi(a|s)] (equation 13): `mmrl.objectives.actor_critic.advantage_weighted`
- online after offline, from one replay buffer: `data.collect_from`
"""

from __future__ import annotations

import torch

from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least
from mmrl.learners.phases.base import Phase, UpdateContext


class PolicyAdvantage(Phase):
    """AWAC's advantage of the recorded action: A = min_k Q_k(s, a) - mean over samples a' ~ pi of min_k Q_k(s, a').

    Args:
        samples: actions of the policy that estimate its value.
        critic: name of the critics.
        actor: name of the policy.
    """

    def __init__(self, samples: int = 1, critic: str = "critic", actor: str = "policy"):
        self.samples, self.critic, self.actor = samples, critic, actor

    def writes(self) -> frozenset[str]:
        return frozenset({"recorded_advantages"})

    def models(self) -> frozenset[str]:
        return frozenset({self.critic, self.actor})

    def check(self) -> None:
        super().check()
        check_at_least(1, type(self).__name__, samples=self.samples)

    @torch.no_grad()
    def __call__(self, batch: Batch, ctx: UpdateContext) -> Batch:
        actor, critic = ctx.models[self.actor], ctx.models[self.critic]
        features = actor.features(batch.observation())
        q = critic(features, actor.to_action(batch["action"][:, 0])).amin(dim=-1)  # [N, 1]
        value = torch.zeros_like(q)
        for _ in range(self.samples):
            sample = actor.rsample(features, ctx.normal(len(features), actor.actions))
            value = value + critic(features, sample.action).amin(dim=-1) / self.samples
        return batch.with_columns(recorded_advantages=q - value)
