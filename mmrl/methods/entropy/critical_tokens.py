"""Critical tokens: KL penalty weighted by the reference's certainty, small where the reference is uncertain.

Ignore the KL Penalty! Boosting Exploration on Critical Tokens to Enhance RL Fine-Tuning, 2025, arXiv:2502.06533.

- how sure a distribution is of its most likely id: `certainty`, per choice `Certainty`
- weights of the penalty from the reference's certainty: `certainty_weights`, as a column `CertaintyWeights`
- the penalty: `mmrl.objectives.weighted_kl.WeightedKL`
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.annotators.logprobs import ForwardAnnotator, reference_of, score_rows
from mmrl.core.batch import Batch
from mmrl.core.errors import check_interval, check_positive
from mmrl.core.types import Context, PolicyOutput
from mmrl.ops.logprob import precision
from mmrl.policies.text.statistics import Statistic


def certainty(
    logits: Tensor,  # [N, T, V]
    temperature: Tensor | float = 1.0,  # [N] or a number
) -> Tensor:  # [N, T] in [0, 1], without gradient
    """1 + log(max_v p_v) / log V: 1 for a certain choice, 0 for the uniform distribution."""
    divisor = torch.as_tensor(temperature, device=logits.device).to(precision(logits)).expand(len(logits))
    x = logits.detach().to(precision(logits)) / divisor[:, None, None]
    return (1 + (x.amax(-1) - x.logsumexp(-1)) / math.log(logits.shape[-1])).clamp(0, 1)


def certainty_weights(sure: Tensor, power: float, intercept: float = 0.0) -> Tensor:
    """(1 - b) c^power + b, b the intercept: 1 where the reference is certain.

    Source: Ignore the KL Penalty!, 2025, section 4, arXiv:2502.06533.
    """
    return (1 - intercept) * sure**power + intercept


@dataclass(frozen=True)
class Certainty(Statistic):
    """Certainty of each choice's distribution, see `certainty`; it has no gradient.

    Args:
        temperature: that the logits are divided by; None for the one of sampling.
    """

    temperature: float | None = None

    def __call__(self, logits: Tensor, temperature: Tensor) -> Tensor:
        return certainty(logits, temperature if self.temperature is None else self.temperature)


@dataclass(frozen=True, kw_only=True)
class CertaintyWeights(ForwardAnnotator):
    """Log-probs of the choices under the reference, and weights of the KL penalty from its certainty, in one pass.

    The policy names `Certainty` under model.policy.statistics, and so does its copy, the reference.

    Args:
        power: of the certainty; the larger, the surer the reference has to be to bind the policy.
        intercept: b <= 0 of `certainty_weights`; below 0 the policy is pushed away where the reference is unsure.
        part: name of the statistic.
    """

    power: float = 150.0
    intercept: float = 0.0
    part: str = "certainty"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("certainty_weights", power=self.power)
        check_interval("certainty_weights", "(-inf, 0]", intercept=self.intercept)

    def needs(self) -> frozenset[str]:
        return frozenset({self.part})

    def writes(self) -> frozenset[str]:
        return frozenset({"ref_logprobs", "kl_weights"})

    def models(self) -> frozenset[str]:
        return frozenset({"reference"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        both = score_rows(reference_of(ctx, "certainty_weights"), batch, self._parts, self.rows, ctx.device)
        return batch.with_columns(ref_logprobs=both[..., 0].clone(), kl_weights=both[..., 1].clone())

    def _parts(self, out: PolicyOutput) -> Tensor:
        if self.part not in out.extra:
            raise ValueError(f"the reference's output has no {self.part!r}; name it under model.policy.statistics")
        weights = certainty_weights(out.extra[self.part], self.power, self.intercept)
        return torch.stack([out.logprobs, weights.to(out.logprobs.dtype)], dim=-1)
