"""OFQL: Q-learning with an actor that is a mean flow, so that one pass of its network is an action.

One-Step Flow Q-Learning, 2025, arXiv:2508.13904, section 4; the order of an update is in conf/phases/ofql.yaml.

- a_t = (1 - t) a + t e, v = e - a, u_tgt = v - (t - r) (v du/da_t + du/dt): `MeanFlowActions`
- L_BC = mean |u(a_t, r, t; s) - u_tgt|^2: `MeanFlowLoss`
- L = L_BC - eta / mean |Q| * mean Q(s, e - u(e, 0, 1; s)): with `mmrl.methods.control.td3_bc.ScaledActorLoss`
- the actor of the target: `mmrl.policies.control.mean_flow`
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import check_fraction
from mmrl.core.types import PolicyOutput
from mmrl.learners.phases.base import UpdateContext
from mmrl.learners.phases.forward_pass import Output
from mmrl.objectives.objective import Term
from mmrl.ops.flow import interpolate, mean_velocity
from mmrl.ops.masked import zero_outside


def flow_times(
    normal: Tensor,  # [N, 3] standard normal draws
    flow_ratio: float,
) -> tuple[Tensor, Tensor]:  # r and t, each [N, 1]
    """Two draws sigmoid(-0.4 + z), z ~ N(0, 1), of which the larger is t; r = t with probability `flow_ratio`."""
    end_time, time = (normal[:, :2] - 0.4).sigmoid().sort(dim=1).values.unbind(dim=1)
    plain = torch.special.ndtr(normal[:, 2]) < flow_ratio
    return torch.where(plain, time, end_time)[:, None], time[:, None]


class MeanFlowActions(Output):
    """Error of the flow on recorded actions, extra["error"] [N, 1], and Q of one-step actions, extra["q"].

    Q is [N, 1, K]. The error is |u - u_tgt|^2, averaged over the dimensions of the action; u_tgt has no gradient.

    Args:
        flow_ratio: probability of r = t, where the target is the plain flow's velocity.
        critic: name of the critics.
        actor: name of the policy, a mean flow.
    """

    def __init__(self, flow_ratio: float = 0.5, critic: str = "critic", actor: str = "policy"):
        check_fraction("MeanFlowActions", flow_ratio=flow_ratio)
        self.flow_ratio, self.critic, self.actor = flow_ratio, critic, actor

    def gives(self) -> frozenset[str]:
        return frozenset({"q", "error"})

    def models(self) -> frozenset[str]:
        return frozenset({self.critic, self.actor})

    def __call__(self, batch: Batch, ctx: UpdateContext) -> PolicyOutput:
        actor = ctx.models[self.actor]
        features = actor.features(batch.observation())
        rows, dims = len(features), actor.actions
        # the flow at a point between a recorded action and noise
        end_time, time = flow_times(ctx.normal(rows, 3), self.flow_ratio)
        action, noise = actor.to_action(batch["action"][:, 0]), ctx.normal(rows, dims)
        velocity, x = noise - action, interpolate(action, noise, time)
        u, derivative = actor.head.with_derivative(actor.actor(features), x, end_time, time, velocity)
        target = mean_velocity(velocity, derivative, time, end_time).detach()
        error = (u - target).square().mean(dim=-1, keepdim=True)
        # the action of one step, from noise of its own
        sample = actor.rsample(features, ctx.normal(rows, dims))
        extra = {"q": ctx.models[self.critic](features, sample.action), "error": error}
        return PolicyOutput(sample.logprobs, -sample.logprobs, extra=extra)


@dataclass(frozen=True)
class MeanFlowLoss(Term):
    """OFQL's imitation: the squared error of the average velocity, averaged over the dimensions of the action."""

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask"})

    def needs(self) -> frozenset[str]:
        return frozenset({"error"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return zero_outside(out.extra["error"], batch["action_mask"])
