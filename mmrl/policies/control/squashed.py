"""Tanh-squashed Gaussian; the choice before squashing is stored, so that scoring is exact."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from mmrl.policies.control.heads import Gaussian, Head
from mmrl.types import Sampling

LOG_STD_RANGE = (-20.0, 2.0)


@dataclass(frozen=True)
class Squashed(Gaussian):
    """a = tanh(u), u ~ N(loc, exp(log_std)^2), dimensions independent; choices are u [N, 1, A].

    log p(a) = log N(u) - sum_k log(1 - tanh(u_k)^2), with log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u)), which
    neither under- nor overflows. Source: Soft Actor-Critic Algorithms and Applications, 2018, appendix C,
    arXiv:1812.05905. The entropy is that of the Gaussian before squashing: that of the squashed one has no closed form.
    """

    def rsample(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Reparameterised actions [N, A] in (-1, 1) and their log-probs [N, 1], from standard normal noise [N, A]."""
        unbounded = torch.addcmul(self.loc, self.log_std.exp(), noise)
        return unbounded.tanh(), self._logprobs(unbounded, noise)

    def logprobs(self, action: Tensor) -> Tensor:
        return self._logprobs(action[:, 0], (action[:, 0] - self.loc) * (-self.log_std).exp())

    def _logprobs(self, unbounded: Tensor, score: Tensor) -> Tensor:
        slope = 2 * (math.log(2) - unbounded - softplus(-2 * unbounded))
        density = 0.5 * score.square() + self.log_std + slope + 0.5 * math.log(2 * math.pi)
        return -density.sum(dim=-1, keepdim=True)

    def truncate(self, sampling: Sampling) -> Squashed:
        raise ValueError(
            f"a squashed Gaussian cannot drop unlikely choices (sampling.top_k={sampling.top_k}, "
            f"sampling.top_p={sampling.top_p}, sampling.min_p={sampling.min_p}); lower sampling.temperature instead"
        )


class SquashedHead(Head):
    """Linear mean and log standard deviation, both functions of the features.

    Args:
        features: F, width of the input.
        actions: A, dimensions of the action.
    """

    def __init__(self, features: int, actions: int):
        super().__init__()
        self.linear = nn.Linear(features, 2 * actions)

    def forward(self, features: Tensor, temperature: Tensor | None = None) -> Squashed:
        loc, log_std = self.linear(features).float().chunk(2, dim=-1)
        log_std = log_std.clamp(*LOG_STD_RANGE)
        return Squashed(loc, log_std if temperature is None else log_std + temperature.log()[:, None])
