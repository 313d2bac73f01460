"""Entropy of the likely part of a distribution, in fp32, without an fp32 copy of all logits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from mmrl.ops.logprob import pieces, precision


def nucleus_entropy(
    logits: Tensor,  # [N, T, V]
    mass: float,
    temperature: Tensor | float = 1.0,  # [N] or a number
) -> Tensor:  # [N, T] nats
    """Entropy of softmax(logits / temperature) renormalised over its most likely ids.

    S holds the ids in order of probability as long as their mass together is at most `mass`, and the most likely one
    always; ids that are exactly as likely as the last of them belong to it too. With q_v = p_v / sum_{u in S} p_u:
    H = -sum_{v in S} q_v log q_v, and dH / dx_v = -q_v (log q_v + H) inside S, 0 outside, S taken as constant.
    Source: Rethinking Entropy Regularization in Large Reasoning Models, 2025, top-p mask.
    """
    if logits.dim() != 3:
        raise ValueError(f"logits must be [N, T, V], got {tuple(logits.shape)}")
    temperature = torch.as_tensor(temperature, device=logits.device).to(precision(logits)).expand(len(logits))
    return _NucleusEntropy.apply(logits, mass, temperature)


class _NucleusEntropy(torch.autograd.Function):
    """Keeps the logits, and of every position the least logit that is in and the normaliser; works on slices."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, mass: float, temperature: Tensor) -> Tensor:
        entropy = torch.empty(logits.shape[:2], dtype=temperature.dtype, device=logits.device)
        least, log_z = torch.empty_like(entropy), torch.empty_like(entropy)
        for at in pieces(logits.shape):
            x = logits[at].to(temperature.dtype) / temperature[at[0], None, None]
            ordered = x.sort(-1, descending=True).values
            # rounding may take the sum of all above 1, so that a whole distribution is not looked for by its mass
            inside = ordered.softmax(-1).cumsum(-1).cummax(-1).values <= (mass if mass < 1 else torch.inf)
            count = inside.sum(-1, keepdim=True).clamp(min=1)
            least[at] = ordered.gather(-1, count - 1).squeeze(-1)
            q, log_q, log_z[at] = _inside(x, least[at])
            entropy[at] = -(q * log_q).sum(-1)
        ctx.save_for_backward(logits, temperature, least, log_z, entropy)
        return entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_entropy: Tensor) -> tuple[Tensor, None, None]:
        logits, temperature, least, log_z, entropy = ctx.saved_tensors
        grad = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
        for at in pieces(logits.shape):
            x = logits[at].to(temperature.dtype) / temperature[at[0], None, None]
            q, log_q, _ = _inside(x, least[at], log_z[at])
            slope = -q * (log_q + entropy[at][..., None]) * d_entropy[at][..., None]
            grad[at] = (slope / temperature[at[0], None, None]).to(logits.dtype)
        return grad, None, None


def _inside(x: Tensor, least: Tensor, log_z: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """q and log q over the ids that are in, 0 elsewhere, and the log of the sum of exp(x) over them."""
    kept = (x >= least[..., None]) & (x > -torch.inf)
    if log_z is None:
        log_z = x.masked_fill(~kept, -torch.inf).logsumexp(-1)
    log_q = torch.where(kept, x - log_z[..., None], 0)
    return torch.where(kept, log_q.exp(), 0), log_q, log_z
