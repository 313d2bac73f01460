"""IQL: offline RL that never asks for the value of an action outside of the data.

Offline Reinforcement Learning with Implicit Q-Learning, 2021, arXiv:2110.06169, algorithm 1, whose order is in
conf/phases/iql.yaml.

- L_V = E [|tau - 1(u < 0)| u^2], u = Q_target(s, a) - V(s) (equation 5): `ExpectileLoss`
- L_Q = E [(r + gamma V(s') - Q(s, a))^2] (equation 6): `ValueTarget`, then the TD loss of all critics
- L_pi = -E [exp(beta (Q_target(s, a) - V(s))) log pi(a|s)] (equation 7): `ImplicitAdvantage`, then
  `mmrl.objectives.actor_critic.advantage_weighted`
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import check_interval
from mmrl.core.types import PolicyOutput
from mmrl.learners.phases.base import Phase, UpdateContext
from mmrl.learners.phases.forward_pass import Output
from mmrl.objectives.actor_critic.expectile import expectile_loss
from mmrl.objectives.objective import Term
from mmrl.ops.masked import zero_outside


def _values(batch: Batch, ctx: UpdateContext, value: str, critic: str, actor: str) -> tuple[Tensor, Tensor]:
    """V(s) [N, 1], and Q(s, a) of the recorded action [N, 1, K]."""
    policy = ctx.models[actor]
    features = policy.features(batch.observation())
    q = ctx.models[critic](features, policy.to_action(batch["action"][:, 0]))
    return ctx.models[value](features), q


class ReplayedValues(Output):
    """V of the recorded states and Q of the recorded actions: extra["v"] [N, 1] and extra["q"] [N, 1, K].

    Args:
        value: name of the state-value function.
        critic: name of the critics, the target networks.
        actor: name of the policy whose actions are stored.
    """

    def __init__(self, value: str = "value", critic: str = "target_critic", actor: str = "policy"):
        self.value, self.critic, self.actor = value, critic, actor

    def gives(self) -> frozenset[str]:
        return frozenset({"v", "q"})

    def models(self) -> frozenset[str]:
        return frozenset({self.value, self.critic, self.actor})

    def __call__(self, batch: Batch, ctx: UpdateContext) -> PolicyOutput:
        v, q = _values(batch, ctx, self.value, self.critic, self.actor)
        nothing = torch.zeros_like(v)
        return PolicyOutput(nothing, nothing, extra={"v": v, "q": q})


@dataclass(frozen=True)
class ExpectileLoss(Term):
    """IQL's value loss: |tau - 1(Q < V)| (Q - V)^2, Q the smallest of K critics, detached (equation 5).

    Args:
        expectile: tau; 0.5 is the mean over the actions of the data, near 1 their maximum.
    """

    expectile: float = 0.7

    def __post_init__(self) -> None:
        check_interval("ExpectileLoss", "(0, 1)", expectile=self.expectile)

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask"})

    def needs(self) -> frozenset[str]:
        return frozenset({"v", "q"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        error = out.extra["q"].detach().amin(dim=-1) - out.extra["v"]
        return expectile_loss(zero_outside(error, batch["action_mask"]), self.expectile)

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        return {"v": zero_outside(out.extra["v"], batch["action_mask"])}


class ValueTarget(Phase):
    """IQL's target of the critics: R = reward + discount * V(s'); no action is chosen in s' (equation 6).

    Args:
        value: name of the state-value function.
        encoder: name of the policy whose encoder computes its features.
    """

    def __init__(self, value: str = "value", encoder: str = "policy"):
        self.value, self.encoder = value, encoder

    def reads(self) -> frozenset[str]:
        return frozenset({"reward", "discount"})

    def writes(self) -> frozenset[str]:
        return frozenset({"returns"})

    def models(self) -> frozenset[str]:
        return frozenset({self.value, self.encoder})

    @torch.no_grad()
    def __call__(self, batch: Batch, ctx: UpdateContext) -> Batch:
        following = {name[5:]: column for name, column in batch.items() if name.startswith("next.")}
        value = ctx.models[self.value](ctx.models[self.encoder].features(following))
        return batch.with_columns(returns=batch["reward"][:, None] + batch["discount"][:, None] * value)


class ImplicitAdvantage(Phase):
    """IQL's advantage of the recorded action: A = min_k Q_k(s, a) - V(s), with the target critics (equation 7).

    Args:
        value: name of the state-value function.
        critic: name of the critics, the target networks.
        actor: name of the policy whose actions are stored.
    """

    def __init__(self, value: str = "value", critic: str = "target_critic", actor: str = "policy"):
        self.value, self.critic, self.actor = value, critic, actor

    def writes(self) -> frozenset[str]:
        return frozenset({"recorded_advantages"})

    def models(self) -> frozenset[str]:
        return frozenset({self.value, self.critic, self.actor})

    @torch.no_grad()
    def __call__(self, batch: Batch, ctx: UpdateContext) -> Batch:
        v, q = _values(batch, ctx, self.value, self.critic, self.actor)
        return batch.with_columns(recorded_advantages=q.amin(dim=-1) - v)
