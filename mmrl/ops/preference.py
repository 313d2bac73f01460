"""Losses of a pair of which one is preferred, as functions of its margin: how much more the preferred one has."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid


def logistic_preference(
    margin: Tensor,  # [P]
    smoothing: float = 0.0,
) -> Tensor:  # [P] nats
    """Surprise at the stated preference when P(preferred wins) = sigmoid(margin).

    loss = -(1 - smoothing) log sigmoid(m) - smoothing log sigmoid(-m), `smoothing` being the share of pairs that are
    believed to be labelled the wrong way round; least at m = log((1 - smoothing) / smoothing), without bound at 0.
    Source: Bradley and Terry, Rank Analysis of Incomplete Block Designs, 1952; on log-ratios to a reference Direct
    Preference Optimization, 2023, equation 7, arXiv:2305.18290; with smoothing its conservative form.
    """
    return -(1 - smoothing) * logsigmoid(margin) - smoothing * logsigmoid(-margin)


def squared_preference(
    margin: Tensor,  # [P] nats
    wanted: float,  # nats
) -> Tensor:  # [P] nats^2
    """(m - wanted)^2: the margin is to be so large and no larger, whatever was preferred how often.

    Source: A General Theoretical Paradigm to Understand Learning from Human Preferences, 2023, equation 17,
    arXiv:2310.12036, with wanted = 1 / (2 tau).
    """
    return (margin - wanted).square()


def hinge_preference(
    margin: Tensor,  # [P]
) -> Tensor:  # [P]
    """max(0, 1 - m): nothing more is asked of a pair that is one apart.

    Source: SLiC-HF: Sequence Likelihood Calibration with Human Feedback, 2023, arXiv:2305.10425.
    """
    return (1 - margin).clamp(min=0)


def paired_margin(
    value: Tensor,  # [N] of each row
    sign: Tensor,  # [N] 1 preferred, -1 not, 0 neither
    group: Tensor,  # [N] ids
) -> Tensor:  # [N] the margin of the row's group
    """m_g = sum of the values of a group's preferred rows minus that of its others, given to each of its rows."""
    _, place = group.unique(return_inverse=True)
    signed = torch.where(sign != 0, value, 0) * sign.to(value.dtype)
    total = value.new_zeros(int(place.max()) + 1 if len(place) else 0).index_add(0, place, signed)
    return total[place]
