"""CQL: SAC whose critics are conservative: actions outside of the data get low values.

Conservative Q-Learning for Offline Reinforcement Learning, 2020, arXiv:2006.04779, CQL(H), equation 4; the order of an
update is in conf/phases/cql.yaml.

- log sum_a exp Q(s, a), by importance sampling from uniform actions and the policy (appendix F): `log_sum_exp_of_q`,
  computed by the forward pass `ConservativeActions`
- E [log sum_a exp Q(s, a) - Q(s, a_data)]: `ConservativePenalty`, beside the TD loss

Its Lagrange variant (appendix F) learns alpha, so that the conservative gap of every critic comes to a threshold tau,
with the losses of the released code; the order of an update is in conf/phases/cql_lagrange.yaml:

    min_Q max_alpha alpha (w (log sum_a exp Q(s, a) - Q(s, a_data)) - tau) + TD loss

- the multiplier beside the values: `LagrangeConservativeActions`
- the critics' part, alpha a constant: `LagrangePenalty`; the multiplier's, the gap a constant: `ThresholdLoss`
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least, check_positive
from mmrl.core.types import PolicyOutput
from mmrl.learners.phases.base import UpdateContext
from mmrl.learners.phases.forward_pass import Output
from mmrl.objectives.objective import Term
from mmrl.ops.masked import zero_outside

LARGEST = 1e6
"""Largest learned alpha, as in the released code."""


def log_sum_exp_of_q(
    q: Tensor,  # [N, S, K] of S sampled actions
    log_density: Tensor,  # [N, S] of each action under the distribution that it was drawn from, nats
) -> Tensor:  # [N, K]
    """Importance-sampled log of the integral of exp Q(s, a) over a: log mean_s exp(Q_s - log p_s)."""
    return torch.logsumexp(q - log_density[..., None], dim=1) - math.log(q.shape[1])


class ConservativeActions(Output):
    """Q of the recorded actions, and the log of the integral of exp Q: extra["q"] and extra["q_soft"], each [N, 1, K].

    The integral over actions in [-1, 1] is estimated by samples: uniform ones, and those of the policy in s and in s',
    all valued in s.

    Args:
        samples: actions of each of the three kinds.
        critic: name of the critics.
        actor: name of the policy.
    """

    def __init__(self, samples: int = 10, critic: str = "critic", actor: str = "policy"):
        check_at_least(1, "ConservativeActions", samples=samples)
        self.samples, self.critic, self.actor = samples, critic, actor

    def gives(self) -> frozenset[str]:
        return frozenset({"q", "q_soft"})

    def models(self) -> frozenset[str]:
        return frozenset({self.critic, self.actor})

    def __call__(self, batch: Batch, ctx: UpdateContext) -> PolicyOutput:
        actor, critic = ctx.models[self.actor], ctx.models[self.critic]
        features = actor.features(batch.observation())
        actions, log_density = self._draw(features, batch, ctx)
        # all S actions of a state in one pass: [N * S, ...]
        rows, count, dims = actions.shape
        repeated = features[:, None].expand(-1, count, -1).reshape(rows * count, -1)
        sampled = critic(repeated, actions.reshape(rows * count, dims)).view(rows, count, -1)
        q = critic(features, actor.to_action(batch["action"][:, 0]))
        nothing = q.new_zeros(q.shape[:2])
        extra = {"q": q, "q_soft": log_sum_exp_of_q(sampled, log_density)[:, None]}
        return PolicyOutput(nothing, nothing, extra=extra)

    @torch.no_grad()
    def _draw(self, features: Tensor, batch: Batch, ctx: UpdateContext) -> tuple[Tensor, Tensor]:
        """Actions [N, 3 samples, A] in [-1, 1] and their log densities [N, 3 samples]."""
        actor = ctx.models[self.actor]
        following = actor.features({name[5:]: column for name, column in batch.items() if name.startswith("next.")})
        rows, shape = len(features), (len(features), self.samples, actor.actions)
        uniform = 2 * torch.special.ndtr(ctx.normal(*shape)) - 1
        actions, densities = [uniform], [uniform.new_full(shape[:2], -actor.actions * math.log(2))]
        for context in (features, following):
            repeated = context[:, None].expand(-1, self.samples, -1).reshape(rows * self.samples, -1)
            sample = actor.rsample(repeated, ctx.normal(*shape).view(-1, actor.actions))
            actions.append(sample.action.view(shape))
            densities.append(sample.logprobs.view(shape[:2]))
        return torch.cat(actions, dim=1), torch.cat(densities, dim=1)


@dataclass(frozen=True)
class ConservativePenalty(Term):
    """CQL(H)'s penalty: sum_k (log integral of exp Q_k(s, a) - Q_k(s, a_data)) (equation 4).

    Its coefficient, `coefficients.conservative`, is the paper's alpha.
    """

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask"})

    def needs(self) -> frozenset[str]:
        return frozenset({"q", "q_soft"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return zero_outside((out.extra["q_soft"] - out.extra["q"]).sum(dim=-1), batch["action_mask"])


class LagrangeConservativeActions(ConservativeActions):
    """As ConservativeActions, with the logarithm of alpha, extra["log_multiplier"] [1].

    Args:
        samples: actions of each of the three kinds.
        critic: name of the critics.
        actor: name of the policy.
        multiplier: name of the Lagrange multiplier.
    """

    def __init__(self, samples: int = 10, critic: str = "critic", actor: str = "policy", multiplier: str = "cql_alpha"):
        super().__init__(samples, critic, actor)
        self.multiplier = multiplier

    def gives(self) -> frozenset[str]:
        return super().gives() | {"log_multiplier"}

    def models(self) -> frozenset[str]:
        return super().models() | {self.multiplier}

    def __call__(self, batch: Batch, ctx: UpdateContext) -> PolicyOutput:
        out = super().__call__(batch, ctx)
        return replace(out, extra={**out.extra, "log_multiplier": ctx.models[self.multiplier].log})


@dataclass(frozen=True)
class LagrangeTerm(Term):
    """Base class of the two terms of w (log integral of exp Q_k(s, a) - Q_k(s, a_data)) - tau, the gap of critic k.

    Args:
        threshold: tau.
        weight: w.
    """

    threshold: float = 10.0
    weight: float = 5.0

    def __post_init__(self) -> None:
        check_positive(type(self).__name__, weight=self.weight)

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask"})

    def needs(self) -> frozenset[str]:
        return frozenset({"q", "q_soft", "log_multiplier"})

    def measure_gaps(self, out: PolicyOutput) -> Tensor:
        """[N, T, K]."""
        return self.weight * (out.extra["q_soft"] - out.extra["q"]) - self.threshold


@dataclass(frozen=True)
class LagrangePenalty(LagrangeTerm):
    """The critics' loss: alpha * sum_k gap_k, alpha detached."""

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        alpha = out.extra["log_multiplier"].detach().exp().clamp(max=LARGEST)
        return alpha * zero_outside(self.measure_gaps(out).sum(-1), batch["action_mask"])


@dataclass(frozen=True)
class ThresholdLoss(LagrangeTerm):
    """The multiplier's loss: -alpha * mean_k gap_k, the gaps detached; alpha rises where they exceed 0."""

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        alpha = out.extra["log_multiplier"].exp().clamp(max=LARGEST)
        return -alpha * zero_outside(self.measure_gaps(out).mean(-1).detach(), batch["action_mask"])

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        mask = batch["action_mask"]
        alpha = out.extra["log_multiplier"].detach().exp().clamp(max=LARGEST)
        return {"alpha": alpha.expand(mask.shape), "gap": zero_outside(self.measure_gaps(out).mean(-1).detach(), mask)}
