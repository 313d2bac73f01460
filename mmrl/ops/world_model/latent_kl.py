"""KL divergence between the posterior and the prior of a latent state, with KL balancing."""

from __future__ import annotations

import torch
from torch import Tensor

MeanAndStd = tuple[Tensor, Tensor]
"""Mean and standard deviation [..., S] of independent Gaussians."""


def gaussian_kl(p: MeanAndStd, q: MeanAndStd) -> Tensor:
    """KL(p || q) in nats, summed over the last axis.

    sum_i log(std_q / std_p) + (std_p^2 + (mean_p - mean_q)^2) / (2 std_q^2) - 1/2
    """
    ratio = (p[1] / q[1]).square()
    shift = ((p[0] - q[0]) / q[1]).square()
    return 0.5 * (ratio + shift - 1 - ratio.log()).sum(-1)


def balanced_kl(posterior: MeanAndStd, prior: MeanAndStd, balance: float | None = None) -> Tensor:
    """KL(posterior || prior) in nats, whose gradient trains the prior more than the posterior.

    a KL(sg(posterior) || prior) + (1 - a) KL(posterior || sg(prior)) with sg for what has no gradient; the value is
    that of the KL divergence for every a, and with a = 1/2 the gradient is half of its gradient.
    Source: Mastering Atari with Discrete World Models, 2021, section 2.2, arXiv:2010.02193.

    Args:
        balance: a in [0, 1]; None for the plain KL divergence with its whole gradient.
    """
    if balance is None:
        return gaussian_kl(posterior, prior)
    fixed_posterior, fixed_prior = (tuple(part.detach() for part in each) for each in (posterior, prior))
    to_prior, to_posterior = gaussian_kl(fixed_posterior, prior), gaussian_kl(posterior, fixed_prior)
    return torch.lerp(to_posterior, to_prior, balance)
