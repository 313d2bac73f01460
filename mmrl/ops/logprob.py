"""Log-probability and entropy of stored choices from logits, in fp32, without an fp32 copy of all logits.

Logits of a language model are the largest tensor of a training step ([N, T, V], often bf16). Both directions work on
slices, so that the fp32 intermediate never exceeds SLICE numbers; only the logits themselves are kept for backward.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from mmrl.ops.choice import MASKED_LOGIT

SLICE = 1 << 24  # fp32 numbers held at once: 64 MiB


def logprob_entropy(
    logits: Tensor,  # [N, T, V]
    action: Tensor,  # [N, T] ids
    temperature: Tensor | float = 1.0,  # [N] or a number
    support_ids: Tensor | None = None,  # [N, T, K] ids, -1 fills up
) -> tuple[Tensor, Tensor]:  # logprobs [N, T] nats, entropy [N, T] nats
    """Log-probability of each stored choice and entropy of its distribution.

    p = softmax(logits / temperature), over support_ids only where they are given; logprobs = log p[action],
    entropy = -sum_v p_v log p_v. An empty support restricts nothing: no truncated sampling drew the choice. An action
    outside a non-empty support could not have been drawn: log-probability -inf.
    """
    if logits.dim() != 3 or action.shape != logits.shape[:2]:
        raise ValueError(
            f"logits must be [N, T, V] and action [N, T], got {tuple(logits.shape)} and {tuple(action.shape)}"
        )
    temperature = torch.as_tensor(temperature, device=logits.device).to(precision(logits)).expand(len(logits))
    if support_ids is None:
        return _LogprobEntropy.apply(logits, action, temperature)
    over_support = _over_support(logits, action, temperature, support_ids)
    unrestricted = (support_ids < 0).all(-1)
    if not unrestricted.any():
        return over_support
    whole = _LogprobEntropy.apply(logits, action, temperature)
    return torch.where(unrestricted, whole[0], over_support[0]), torch.where(unrestricted, whole[1], over_support[1])


def precision(logits: Tensor) -> torch.dtype:
    """Dtype for computations on these logits: at least fp32."""
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def _over_support(logits: Tensor, action: Tensor, temperature: Tensor, support_ids: Tensor) -> tuple[Tensor, Tensor]:
    x = logits.gather(-1, support_ids.clamp(min=0)).to(temperature.dtype) / temperature[:, None, None]
    return renormalised_logprob_entropy(x, action, support_ids)


def renormalised_logprob_entropy(
    x: Tensor,  # [..., K] logits of the support, divided by the temperature
    action: Tensor,  # [...] ids
    support_ids: Tensor,  # [..., K] ids, -1 fills up
) -> tuple[Tensor, Tensor]:  # logprobs [...] and entropy [...] in nats
    """Log-probability and entropy of softmax(x) restricted to the support, see `logprob_entropy`.

    Where the support is empty both are 0, without gradient: the caller has the logits of the whole distribution.
    """
    present = support_ids >= 0
    log_p = torch.where(present, x, MASKED_LOGIT).log_softmax(-1)
    entropy = -(log_p.exp() * torch.where(present, log_p, 0)).sum(-1)
    is_action = present & (support_ids == action[..., None])
    logprobs = torch.where(is_action, log_p, 0).sum(-1)
    nothing = ~present.any(-1)
    return torch.where(is_action.any(-1) | nothing, logprobs, -torch.inf), torch.where(nothing, 0, entropy)


def pieces(shape: torch.Size) -> Iterator[tuple[slice, slice]]:
    """Pieces of [N, T, V] of at most about SLICE numbers, as views: the logits are often a strided slice."""
    n, t, v = shape
    if t * v <= SLICE:
        size = max(SLICE // max(t * v, 1), 1)
        for start in range(0, n, size):
            yield slice(start, start + size), slice(None)
        return
    size = max(SLICE // v, 1)
    for row in range(n):
        for start in range(0, t, size):
            yield slice(row, row + 1), slice(start, start + size)


class _LogprobEntropy(torch.autograd.Function):
    """With x = logits / T: d logprob / dx_v = 1[v = action] - p_v; d entropy / dx_v = -p_v (log p_v + entropy)."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, action: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
        logprobs = torch.empty(action.shape, dtype=temperature.dtype, device=logits.device)
        entropy, log_z = torch.empty_like(logprobs), torch.empty_like(logprobs)
        for at in pieces(logits.shape):
            x = logits[at].to(temperature.dtype) / temperature[at[0], None, None]
            log_z[at] = x.logsumexp(-1)
            logprobs[at] = x.gather(-1, action[at][..., None]).squeeze(-1) - log_z[at]
            entropy[at] = torch.special.entr((x - log_z[at][..., None]).exp_()).sum(-1)
        ctx.save_for_backward(logits, action, temperature, log_z, entropy)
        return logprobs, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_logprobs: Tensor, d_entropy: Tensor) -> tuple[Tensor, None, None]:
        logits, action, temperature, log_z, entropy = ctx.saved_tensors
        grad = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
        for at in pieces(logits.shape):
            p = (logits[at].to(temperature.dtype) / temperature[at[0], None, None] - log_z[at][..., None]).exp_()
            g, h = d_logprobs[at][..., None], d_entropy[at][..., None]
            x = torch.special.entr(p).sub_(p * entropy[at][..., None]).mul_(h).sub_(p.mul_(g))
            x.scatter_add_(-1, action[at][..., None], g.to(x.dtype).contiguous())
            grad[at] = x.div_(temperature[at[0], None, None]).to(logits.dtype)
        return grad, None, None
