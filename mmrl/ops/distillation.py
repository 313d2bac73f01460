"""Divergences between the distributions of a student and a teacher."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def generalised_jsd(
    student: Tensor,  # [..., V] log-probabilities in nats
    teacher: Tensor,  # [..., V]
    beta: float,
) -> Tensor:  # [...] nats
    """Generalised Jensen-Shannon divergence of a teacher P and a student Q, over the whole vocabulary.

    JSD = beta KL(P || M) + (1 - beta) KL(Q || M), with the mixture M = beta P + (1 - beta) Q. At beta 0 it is the
    forward KL(P || Q), at beta 1 the reverse KL(Q || P), the limits of JSD / beta and of JSD / (1 - beta).
    Source: On-Policy Distillation of Language Models, 2023, equation 1, arXiv:2306.13649.
    """
    if beta == 0:
        return _kl(teacher, student)
    if beta == 1:
        return _kl(student, teacher)
    mixture = torch.logaddexp(teacher + math.log(beta), student + math.log1p(-beta))
    return beta * _kl(teacher, mixture) + (1 - beta) * _kl(student, mixture)


def _kl(p: Tensor, q: Tensor) -> Tensor:
    """KL(p || q) of log-probabilities over the last axis."""
    return (p.exp() * (p - q)).sum(-1)
