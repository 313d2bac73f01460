"""TD3+BC: TD3 whose actor also imitates the recorded actions.

A Minimalist Approach to Offline Reinforcement Learning, 2021, arXiv:2106.06860, equations 3 to 5; the order of an
update is in conf/phases/td3_bc.yaml.

- pi = argmax E [lambda Q(s, pi(s)) - (pi(s) - a)^2], lambda = alpha / mean |Q(s, pi(s))|: `scale_of_q`,
  `ScaledActorLoss` and `ActionRegression`, on the forward pass `RegressedActions`
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import check_positive
from mmrl.core.types import PolicyOutput
from mmrl.learners.phases.base import UpdateContext
from mmrl.learners.phases.forward_pass import Output
from mmrl.objectives.objective import Term
from mmrl.ops.masked import masked_mean, zero_outside


def scale_of_q(
    q: Tensor,  # [N, T] Q(s, pi(s))
    mask: Tensor,  # [N, T] bool
    alpha: float,
) -> Tensor:  # scalar, without gradient
    """lambda = alpha / mean |Q| over the minibatch (equation 5)."""
    return alpha / masked_mean(q.detach().abs(), mask).clamp(min=1e-8)


class RegressedActions(Output):
    """Q of the policy's actions and their distance from the recorded ones: extra["q"] [N, 1, K], extra["error"] [N, 1].

    The error is the squared distance of actions in [-1, 1], averaged over their dimensions.

    Args:
        critic: name of the critics.
        actor: name of the policy.
    """

    def __init__(self, critic: str = "critic", actor: str = "policy"):
        self.critic, self.actor = critic, actor

    def gives(self) -> frozenset[str]:
        return frozenset({"q", "error"})

    def models(self) -> frozenset[str]:
        return frozenset({self.critic, self.actor})

    def __call__(self, batch: Batch, ctx: UpdateContext) -> PolicyOutput:
        actor = ctx.models[self.actor]
        features = actor.features(batch.observation())
        sample = actor.rsample(features, ctx.normal(len(features), actor.actions))
        error = (sample.action - actor.to_action(batch["action"][:, 0])).square().mean(dim=-1, keepdim=True)
        extra = {"q": ctx.models[self.critic](features, sample.action), "error": error}
        return PolicyOutput(sample.logprobs, -sample.logprobs, extra=extra)


@dataclass(frozen=True)
class ScaledActorLoss(Term):
    """TD3+BC's actor loss: -lambda Q_1(s, pi(s)), lambda = alpha / mean |Q_1| over the minibatch (equations 4 and 5).

    Args:
        alpha: weight of the value against the imitation.
    """

    alpha: float = 2.5
    whole_micro_batches = True  # the mean of |Q|

    def __post_init__(self) -> None:
        check_positive("ScaledActorLoss", alpha=self.alpha)

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask"})

    def needs(self) -> frozenset[str]:
        return frozenset({"q"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        q, mask = out.extra["q"][..., 0], batch["action_mask"]
        return -scale_of_q(q, mask, self.alpha) * zero_outside(q, mask)

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        scale = scale_of_q(out.extra["q"][..., 0], batch["action_mask"], self.alpha)
        return {"lambda": scale.expand(batch["action_mask"].shape)}


@dataclass(frozen=True)
class ActionRegression(Term):
    """TD3+BC's imitation: the squared distance of pi(s) from the recorded action, averaged over dimensions."""

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask"})

    def needs(self) -> frozenset[str]:
        return frozenset({"error"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return zero_outside(out.extra["error"], batch["action_mask"])
