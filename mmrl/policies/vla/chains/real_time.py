"""Real-time chunking: a chunk of a flow policy that continues the one that is being played."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from mmrl.core.rng import Noise
from mmrl.policies.vla.chains.base import Chain, Prefix, column


class VelocityPolicy(Protocol):
    """What is read of a `ChainPolicy` whose network predicts velocities."""

    chain: Chain

    @property
    def state_shape(self) -> tuple[int, int]: ...

    def predict(self, prefix: Prefix, x: Tensor, time: Tensor) -> tuple[Tensor, Tensor | None]: ...

    def pad_actions(self, chunk: Tensor) -> Tensor: ...

    def crop_actions(self, state: Tensor) -> Tensor: ...


def guidance_weight(time: Tensor, limit: float) -> Tensor:
    """Factor of the guidance at times from 1 (noise) to 0 (chunk): min(limit, (t^2 + (1 - t)^2) / (t (1 - t))).

    Source: Black et al., 2025, equations 2 and 4, arXiv:2506.07339, with time running the other way.
    """
    return ((time**2 + (1 - time) ** 2) / (time * (1 - time))).clamp(max=limit)


def guided_velocity(
    policy: VelocityPolicy, prefix: Prefix, x: Tensor, time: Tensor, previous: Tensor, weights: Tensor, limit: float
) -> Tensor:
    """The network's velocity at states x [N, S, D], turned towards states whose chunk is `previous` where weighted.

    Args:
        policy: whose network predicts a velocity.
        prefix: encoded contexts.
        x: states at `time`.
        time: [N], in (0, 1].
        previous: [N, S, D], the chunk that is continued.
        weights: [N, S, D], that fade over the chunk.
        limit: most of the guidance, beta of the paper.
    """
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        velocity, _ = policy.predict(prefix, x, time)
        chunk = x - column(time) * velocity
        (pull,) = torch.autograd.grad(chunk, x, grad_outputs=weights * (previous - chunk).detach())
    return velocity.detach() - column(guidance_weight(time, limit)) * pull


def sample_continuation(
    policy: VelocityPolicy, prefix: Prefix, noise: Noise, previous: Tensor, weights: Tensor, limit: float
) -> Tensor:
    """Chunks [N, H, A] from noise, in the chain's deterministic steps, each guided towards `previous`."""
    x = noise.normal(*policy.state_shape).to(previous.device)
    previous, weights = policy.pad_actions(previous), policy.pad_actions(weights)
    for i in range(policy.chain.steps):
        index = torch.full((len(x),), i, device=x.device)
        time, next_time = policy.chain.time(index), policy.chain.time(index + 1)
        velocity = guided_velocity(policy, prefix, x, time, previous, weights, limit)
        x = x + column(next_time - time) * velocity
    return policy.crop_actions(x)
