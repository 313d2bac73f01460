"""Estimates of the Kullback-Leibler divergence from the log-probabilities of samples alone.

Source: Schulman, Approximating KL Divergence, 2020.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

Estimator = Literal["k1", "k2", "k3"]

LIMIT = 20.0
"""Largest exponent of k3: above it the estimate is constant and its gradient 0. e^20 = 4.9e8 is finite in fp32."""


def divergence(
    logprobs: Tensor,  # [N, T] nats, of the distribution that was sampled from
    reference: Tensor,  # [N, T] nats
    estimator: Estimator,
) -> Tensor:  # [N, T] nats
    """One-sample estimate of KL(policy || reference), the samples being the policy's.

    With d = reference - logprobs: k1 = -d (unbiased, can be negative, its own gradient is 0 on average);
    k2 = d^2 / 2 (biased, its gradient on average is that of KL(policy || reference));
    k3 = exp(d) - 1 - d (unbiased, never negative, its gradient on average is that of KL(reference || policy)).
    """
    d = reference - logprobs
    if estimator == "k1":
        return -d
    if estimator == "k2":
        return d.square() / 2
    if estimator == "k3":
        # d is clamped as a whole: clamping only the exponent would reverse the sign of the gradient
        d = d.clamp(max=LIMIT)
        return d.exp() - 1 - d
    raise ValueError(f'estimator must be "k1", "k2" or "k3", got {estimator!r}')
