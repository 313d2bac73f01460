"""Preference losses: of the margin between two rows (Bradley-Terry, IPO, hinge), and of single rows (KTO)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid


def bradley_terry_loss(
    margin: Tensor,  # [P]
    label_smoothing: float | Tensor = 0.0,  # of each pair, [P], or of all
) -> Tensor:  # [P] nats
    """Bradley-Terry negative log-likelihood of a label, P(preferred wins) = sigmoid(margin); DPO's loss of log-ratios.

    loss = -(1 - label_smoothing) log sigmoid(m) - label_smoothing log sigmoid(-m), with the assumed fraction of wrong
    labels; its minimum is at m = log((1 - label_smoothing) / label_smoothing), or at infinity for 0.
    Source: Bradley and Terry, Rank Analysis of Incomplete Block Designs, 1952; on log-ratios to a reference Direct
    Preference Optimization, 2023, equation 7, arXiv:2305.18290; with smoothing its conservative form (cDPO).
    """
    return -(1 - label_smoothing) * logsigmoid(margin) - label_smoothing * logsigmoid(-margin)


def robust_loss(
    margin: Tensor,  # [P]
    flip_probability: float,
) -> Tensor:  # [P] nats
    """Robust DPO loss: under labels that are flipped with probability e its mean is the loss on the true labels.

    loss = (-(1 - e) log sigmoid(m) + e log sigmoid(-m)) / (1 - 2 e).
    Source: Provably Robust DPO: Aligning Language Models with Noisy Feedback, 2024, equation 12, arXiv:2403.00409.
    """
    noisy = -(1 - flip_probability) * logsigmoid(margin) + flip_probability * logsigmoid(-margin)
    return noisy / (1 - 2 * flip_probability)


def ipo_loss(
    margin: Tensor,  # [P] nats
    target: float,  # nats
) -> Tensor:  # [P] nats^2
    """IPO loss (m - target)^2: the margin is regressed to a finite target.

    Source: A General Theoretical Paradigm to Understand Learning from Human Preferences, 2023, equation 17,
    arXiv:2310.12036, with target = 1 / (2 tau).
    """
    return (margin - target).square()


def hinge_loss(
    margin: Tensor,  # [P]
) -> Tensor:  # [P]
    """Hinge loss of SLiC: max(0, 1 - m).

    Source: SLiC-HF: Sequence Likelihood Calibration with Human Feedback, 2023, arXiv:2305.10425.
    """
    return (1 - margin).clamp(min=0)


def kto_loss(
    log_ratio: Tensor,  # [N] nats, of the policy to the reference
    sign: Tensor,  # [N] 1 desirable, -1 undesirable
    reference_point: Tensor,  # [N] nats
    beta: float,
) -> Tensor:  # [N]
    """KTO loss of single rows: 1 - sigmoid(beta sign (log_ratio - z0)), with the reference point z0 >= 0.

    Source: KTO: Model Alignment as Prospect Theoretic Optimization, 2024, section 4.1, arXiv:2402.01306.
    """
    return 1 - torch.sigmoid(beta * sign * (log_ratio - reference_point))


def log_odds(
    logprob: Tensor,  # [N] nats
) -> Tensor:  # [N] nats
    """Log-odds log(p / (1 - p)) of a probability p = exp(logprob), which counts as at most 1 - 1e-7.

    Source: ORPO: Monolithic Preference Optimization without Reference Model, 2024, equation 4, arXiv:2403.07691, where
    logprob is the mean over a completion's tokens.
    """
    logprob = logprob.clamp(max=-1e-7)
    return logprob - (-logprob.expm1()).log()


def smooth_label(
    probability: Tensor,  # [P] that the preferred row is better
    label_smoothing: float,
) -> Tensor:  # [P]
    """Probability that a label is wrong, of a soft label p of which a share e is turned: 1 - p (1 - e) - (1 - p) e."""
    return 1 - (probability * (1 - label_smoothing) + (1 - probability) * label_smoothing)


def paired_margin(
    value: Tensor,  # [N, ...] of each row
    sign: Tensor,  # [N] 1 preferred, -1 not, 0 neither
    group: Tensor,  # [N] ids
) -> Tensor:  # [N, ...] the margin of the row's group
    """m_g = sum of the values of a group's preferred rows minus that of its others, given to each of its rows."""
    _, place = group.unique(return_inverse=True)
    sign = sign.view(-1, *(1 for _ in value.shape[1:]))
    signed = torch.where(sign != 0, value, 0) * sign.to(value.dtype)
    total = value.new_zeros(int(place.max()) + 1 if len(place) else 0, *value.shape[1:]).index_add(0, place, signed)
    return total[place]
