"""DQO: offline soft Q-learning of a language model, whose log-ratio is Q - V, with a value head.

Enhancing Multi-Step Reasoning Abilities of Language Models through Direct Q-Function Optimization, 2024,
arXiv:2410.09302.

- Q - V = beta log(pi / pi_ref), fitted to the one-step advantage: `QFunctionLoss`
- values fitted to lambda-returns of soft rewards, weighted by truncated importance ratios: `SoftValueLoss`
- the arithmetic is in `mmrl.ops.soft_returns`
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import check_fraction, check_interval
from mmrl.core.types import PolicyOutput
from mmrl.objectives.soft_bellman import SoftBellmanTerm
from mmrl.ops.masked import zero_outside
from mmrl.ops.soft_returns import log_ratio_residual, place_at_end, soft_lambda_returns


def truncated_products(
    log_ratio: Tensor,  # [N, T] nats
    mask: Tensor,  # [N, T] bool
    least: float,
) -> Tensor:  # [N, T], 0 outside the mask, without gradient
    """Product of min(1, ratio) over the choices from each one to the end of its row, at least `least`."""
    logs = zero_outside(log_ratio, mask).detach().clamp(max=0)
    products = logs.flip(1).cumsum(1).flip(1).clamp(min=math.log(least)).exp()
    return zero_outside(products, mask)


@dataclass(frozen=True)
class QFunctionLoss(SoftBellmanTerm):
    """DQO policy loss: (beta log(pi / pi_ref)_t - (r_t + V_{t+1} - V_t))^2, the values as constants, per choice.

    Rows are whole answers, off-policy or not. Source: Direct Q-Function Optimization, 2024,
    arXiv:2410.09302.
    """

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        values, log_ratio, reward, mask = self.parts(out, batch)
        return log_ratio_residual(log_ratio, values, place_at_end(reward, mask), mask, self.beta).square()


@dataclass(frozen=True)
class SoftValueLoss(SoftBellmanTerm):
    """DQO value loss: w_t (G_t - V_t)^2 with the lambda-return G of soft rewards, a constant, per choice.

    w_t is the product of min(1, pi / mu) over the choices from t to the end, mu the behaviour policy, since the data
    may be another policy's. Source: Direct Q-Function Optimization, 2024, arXiv:2410.09302.

    Args:
        gae_lambda: 1 for the whole return, 0 for the next choice's value.
        min_weight: lower bound of w.
        old: column of the behaviour policy's log-probs; none for w = 1.
    """

    gae_lambda: float = 0.95
    min_weight: float = 0.1
    old: str | None = "behavior_logprobs"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction("dqo", gae_lambda=self.gae_lambda)
        check_interval("dqo", "(0, 1]", min_weight=self.min_weight)

    def reads(self) -> frozenset[str]:
        return super().reads() | ({self.old} if self.old is not None else set())

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        values, log_ratio, reward, mask = self.parts(out, batch)
        reward = place_at_end(reward, mask)
        returns = soft_lambda_returns(log_ratio, values, reward, mask, self.beta, self.gae_lambda)
        error = zero_outside(returns - values, mask).square()
        return error if self.old is None else error * self._weights(out, batch, self.old)

    def _weights(self, out: PolicyOutput, batch: Batch, old: str) -> Tensor:
        mask = batch["action_mask"]
        log_ratio = torch.where(mask, out.logprobs.detach() - batch[old], 0)
        return truncated_products(log_ratio, mask, self.min_weight)
