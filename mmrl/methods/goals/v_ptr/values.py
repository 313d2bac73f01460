"""V-PTR's first phase: intent-conditioned values V(s, g, z) of pictures, from videos without actions (ICVF).

Reinforcement Learning from Passive Data via Latent Intentions, 2023, arXiv:2304.04782; the order of an update is in
conf/phases/icvf.yaml.

- V(s, g, z), the value of outcome g for who wants z: `IntentValues`
- A = r_z + gamma_z min_k V'_k(s', z, z) - mean_k V'_k(s, z, z), e_k = r_g + gamma_g V'_k(s', g, z) - V_k(s, g, z):
  `IntentErrors`; the loss sum_k |tau - 1(A < 0)| e_k^2 is `mmrl.methods.goals.hilp.TemporalDistanceLoss`
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least
from mmrl.core.types import PolicyOutput
from mmrl.learners.phases.base import UpdateContext
from mmrl.learners.phases.forward_pass import Output


def _network(features: int, hidden: int, dims: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(features, hidden), nn.LayerNorm(hidden), nn.GELU(), nn.Linear(hidden, dims))


class MultilinearValue(nn.Module):
    """V(s, g, z) = <A (T(psi(z)) * phi(s)), B (T(psi(z)) * psi(g))>, * by entries, A and B matrices.

    T(psi(z)) stands for a matrix of D numbers in place of D^2. Source: arXiv:2304.04782, released code.

    Args:
        features: F, width of the encoder's features.
        dims: D, of phi and psi.
        hidden: width of the hidden layer of phi, psi and T.
    """

    def __init__(self, features: int, dims: int, hidden: int):
        super().__init__()
        self.phi, self.psi, self.intent = (_network(size, hidden, dims) for size in (features, features, dims))
        self.state_proj, self.outcome_proj = nn.Linear(dims, dims, bias=False), nn.Linear(dims, dims, bias=False)

    def forward(self, states: Tensor, outcomes: Tensor, intents: Tensor) -> Tensor:
        """Values [N] of features [N, F] each."""
        matrix = self.intent(self.psi(intents))
        return (self.state_proj(matrix * self.phi(states)) * self.outcome_proj(matrix * self.psi(outcomes))).sum(-1)


class IntentValues(nn.Module):
    """K values of an outcome g under an intent z, `MultilinearValue` each.

    Args:
        features: F, width of the encoder's features of a picture.
        dims: D.
        hidden: width of the hidden layers.
        count: K; the smaller of two values reduces overestimation.
    """

    def __init__(self, features: int, dims: int = 64, hidden: int = 128, count: int = 2):
        super().__init__()
        check_at_least(1, "model.models.intents", features=features, dims=dims, hidden=hidden, count=count)
        self.networks = nn.ModuleList(MultilinearValue(features, dims, hidden) for _ in range(count))

    def forward(self, states: Tensor, outcomes: Tensor, intents: Tensor) -> Tensor:
        """Values [N, K] of features [N, F] each."""
        return torch.stack([network(states, outcomes, intents) for network in self.networks], dim=1)


class IntentErrors(Output):
    """Errors of V_k(s, g, z) and the advantage of the recorded step for who wants z, of pictures.

    extra["temporal_errors"] [N, 1, K]: r_g + gamma_g V'_k(s', g, z) - V_k(s, g, z), with gradient to V_k alone.
    extra["temporal_advantage"] [N, 1]: r_z + gamma_z min_k V'_k(s', z, z) - mean_k V'_k(s, z, z). V' are the targets'.

    Args:
        actor: name of the policy, whose picture encoder is trained.
        target_actor: name of its target network.
        values: name of the `IntentValues`.
        target_values: name of their target network.
    """

    def __init__(
        self,
        actor: str = "policy",
        target_actor: str = "target_policy",
        values: str = "intents",
        target_values: str = "target_intents",
    ):
        self.actor, self.target_actor, self.values, self.target_values = actor, target_actor, values, target_values

    def gives(self) -> frozenset[str]:
        return frozenset({"temporal_errors", "temporal_advantage"})

    def models(self) -> frozenset[str]:
        return frozenset({self.actor, self.target_actor, self.values, self.target_values})

    def __call__(self, batch: Batch, ctx: UpdateContext) -> PolicyOutput:
        encode, target_encode = (find_encoder(ctx.models[name]) for name in (self.actor, self.target_actor))
        names = ("obs.image", "obs.outcome", "obs.intent")
        v = ctx.models[self.values](*(encode(batch[name]) for name in names))  # [N, K]
        with torch.no_grad():
            target = ctx.models[self.target_values]
            here, after, outcome, intent = (
                target_encode(batch[name]) for name in ("obs.image", "next.image", "obs.outcome", "obs.intent")
            )
            goal = batch["reward"][:, None] + batch["discount"][:, None] * target(after, outcome, intent)
            best = target(after, intent, intent).amin(1)
            advantage = batch["intent_reward"] + batch["intent_discount"] * best - target(here, intent, intent).mean(1)
        nothing = torch.zeros_like(advantage[:, None])
        extra = {"temporal_errors": (goal - v)[:, None], "temporal_advantage": advantage[:, None]}
        return PolicyOutput(nothing, nothing, extra=extra)


def find_encoder(policy: nn.Module) -> nn.Module:
    """The picture encoder of a control policy.

    Raises:
        ValueError: it reads no picture.
    """
    encoder = getattr(getattr(policy, "encoder", None), "image_encoder", None)
    if encoder is None:
        raise ValueError("phase icvf trains a picture encoder, and the policy has none; set policy.image_size")
    return encoder
