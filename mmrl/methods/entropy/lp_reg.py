"""Lp-Reg: pull rare tokens of wrong answers towards their probability after min-p filtering.

Low-probability Tokens Sustain Exploration in Reinforcement Learning with Verifiable Reward, 2025, arXiv:2510.03222.

- probability of the choice after min-p filtering: `min_p_probability`, as a statistic `MinPProbability`
- which choices are regularised: `LowProbabilityProxy`
- their loss: `LowProbabilitySurrogate`
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.annotators.base import Annotator
from mmrl.core.batch import Batch
from mmrl.core.columns import Column, register_columns
from mmrl.core.errors import check_at_least, check_fraction
from mmrl.core.types import Context, PolicyOutput
from mmrl.objectives.policy import ClippedSurrogate
from mmrl.ops.logprob import precision
from mmrl.ops.masked import zero_outside
from mmrl.ops.policy_gradient import divergence
from mmrl.policies.text.statistics import ChoiceStatistic

register_columns(
    {
        "min_p_probs": Column(
            "[N, T]",
            "1",
            "Lp-Reg: probability of each choice after min-p filtering, before the update; 0 where it is filtered out",
        ),
    }
)


def min_p_probability(
    logits: Tensor,  # [N, T, V]
    action: Tensor,  # [N, T] ids
    min_p: float,
    temperature: Tensor | float = 1.0,  # [N] or a number
) -> Tensor:  # [N, T] in [0, 1], without gradient
    """Probability of the chosen id after min-p filtering: p / sum of those kept, 0 where it is filtered out.

    Ids are kept whose probability is at least min_p times the largest one.
    """
    divisor = torch.as_tensor(temperature, device=logits.device).to(precision(logits)).expand(len(logits))
    x = logits.detach().to(precision(logits)) / divisor[:, None, None]
    least = x.amax(-1, keepdim=True) + (math.log(min_p) if min_p > 0 else -math.inf)
    min_p_logits = x.masked_fill(x < least, -torch.inf)
    return (min_p_logits.gather(-1, action[..., None])[..., 0] - min_p_logits.logsumexp(-1)).exp()


@dataclass(frozen=True)
class MinPProbability(ChoiceStatistic):
    """Probability of each choice after min-p filtering, see `min_p_probability`; it has no gradient.

    Args:
        min_p: least share of the largest probability that an id needs to be kept, the paper's kappa.
    """

    min_p: float = 0.02

    def __post_init__(self) -> None:
        check_fraction("min_p_probability", min_p=self.min_p)

    def measure(self, logits: Tensor, temperature: Tensor, action: Tensor) -> Tensor:
        return min_p_probability(logits, action, self.min_p, temperature)


@dataclass(frozen=True)
class LowProbabilityProxy(Annotator):
    """Keep `min_p_probs` of the least likely choices of negative advantage, and set all others to 0.

    They are the int(fraction * n) least likely of the n choices with a negative advantage, of all processes, and none
    where that is fewer than two. Source: Low-probability Tokens Sustain Exploration, 2025, arXiv:2510.03222.

    Args:
        fraction: of the choices with a negative advantage.
        logprobs: column by which choices are compared.
    """

    fraction: float = 0.01
    logprobs: str = "behavior_logprobs"

    def __post_init__(self) -> None:
        check_fraction("low_probability_proxy", fraction=self.fraction)

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "advantages", "min_p_probs", self.logprobs})

    def writes(self) -> frozenset[str]:
        return frozenset({"min_p_probs"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        mask, logprobs = batch["action_mask"], batch[self.logprobs]
        negative = mask & (batch["advantages"] < 0)
        everyone = torch.cat(ctx.collector.gather([logprobs[negative]]))
        count = int(self.fraction * len(everyone))
        if count < 2:
            return batch.with_columns(min_p_probs=torch.zeros(mask.shape))
        threshold = everyone.kthvalue(count).values
        return batch.with_columns(min_p_probs=zero_outside(batch["min_p_probs"], negative & (logprobs <= threshold)))

    def metrics(self, batch: Batch, ctx: Context) -> dict[str, float]:
        """fraction: share of the choices that may be regularised."""
        mask = batch["action_mask"]
        count = int((batch["min_p_probs"][mask] > 0).sum())
        count, total = map(sum, zip(*ctx.collector.gather([(count, int(mask.sum()))])))
        return {"fraction": count / max(total, 1)}


@dataclass(frozen=True)
class LowProbabilitySurrogate(ClippedSurrogate):
    """Lp-Reg loss: the clipped surrogate, and for rare choices in wrong answers a pull to their filtered probability.

    With q the column `min_p_probs`, where A < 0, q > 0 and log pi < log q: loss = -A ratio + coef * k3, k3 = q / pi - 1
    - log(q / pi); elsewhere the clipped surrogate. Tokens removed by min-p are not regularised. Source:
    Low-probability Tokens Sustain Exploration, 2025, arXiv:2510.03222.

    Args:
        coef: of the divergence.
    """

    coef: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(0, "low_probability_surrogate", coef=self.coef)

    def reads(self) -> frozenset[str]:
        return super().reads() | {"min_p_probs"}

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return torch.where(self._mask(out, batch), self._regularise(out, batch), super().__call__(out, batch))

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """Those of the clipped surrogate; regularised: choices that are pulled to their filtered probability."""
        return {**super().metrics(out, batch), "regularised": self._mask(out, batch).to(out.logprobs.dtype)}

    def loss_and_metrics(self, out: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.no_grad():
            metrics = self.metrics(out, batch)
        return self(out, batch), metrics

    def _mask(self, out: PolicyOutput, batch: Batch) -> Tensor:
        mask = batch["action_mask"]
        proxy = zero_outside(batch["min_p_probs"], mask)
        logprobs = zero_outside(out.logprobs.detach(), mask)
        return mask & (self.advantages(batch) < 0) & (proxy > 0) & (logprobs < proxy.log())

    def _regularise(self, out: PolicyOutput, batch: Batch) -> Tensor:
        mask = self._mask(out, batch)
        ratio, advantages = self._pair(out, batch)
        proxy = torch.where(mask, batch["min_p_probs"], 1.0)  # whose log is finite everywhere
        return -advantages * ratio + self.coef * divergence(zero_outside(out.logprobs, mask), proxy.log(), "k3")
