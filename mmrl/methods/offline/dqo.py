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
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Term
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
class _SoftBellman(Term):
    """Terms of the soft Bellman equation of a row with values per choice.

    Args:
        beta: reward per nat of distance to the reference.
        reference: column of the reference's log-probs.
    """

    beta: float = 0.03
    reference: str = "ref_logprobs"

    def __post_init__(self) -> None:
        if self.beta <= 0:
            raise ValueError(f"dqo.beta must be > 0, got {self.beta}")

    def needs(self) -> frozenset[str]:
        return frozenset({"values"})

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "episode_reward", self.reference})

    def _parts(self, out: PolicyOutput, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Log-ratios to the reference, values, rewards and mask, each [N, T]."""
        mask = batch["action_mask"]
        if out.values is None or out.values.dim() != 2:
            raise ValueError("dqo needs values of every choice; set model.policy.value_head=true")
        log_ratio = zero_outside(out.logprobs, mask) - zero_outside(batch[self.reference], mask)
        return (
            log_ratio,
            zero_outside(out.values, mask),
            place_at_end(batch["episode_reward"].to(log_ratio.dtype), mask),
            mask,
        )


@dataclass(frozen=True)
class QFunctionLoss(_SoftBellman):
    """DQO policy loss: (beta log(pi / pi_ref)_t - (r_t + V_{t+1} - V_t))^2, the values as constants, per choice.

    Rows are whole answers, off-policy or not. Source: Direct Q-Function Optimization, 2024,
    arXiv:2410.09302.
    """

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return log_ratio_residual(*self._parts(out, batch), self.beta).square()


@dataclass(frozen=True)
class SoftValueLoss(_SoftBellman):
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
        if not 0 <= self.gae_lambda <= 1 or not 0 < self.min_weight <= 1:
            raise ValueError(
                f"dqo: need gae_lambda in [0, 1] and min_weight in (0, 1], got {self.gae_lambda} and {self.min_weight}"
            )

    def reads(self) -> frozenset[str]:
        return super().reads() | ({self.old} if self.old is not None else set())

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        log_ratio, values, reward, mask = self._parts(out, batch)
        returns = soft_lambda_returns(log_ratio, values, reward, mask, self.beta, self.gae_lambda)
        error = zero_outside(returns - values, mask).square()
        return error if self.old is None else error * self._weights(out, batch, self.old)

    def _weights(self, out: PolicyOutput, batch: Batch, old: str) -> Tensor:
        mask = batch["action_mask"]
        log_ratio = torch.where(mask, out.logprobs.detach() - batch[old], 0)
        return truncated_products(log_ratio, mask, self.min_weight)
