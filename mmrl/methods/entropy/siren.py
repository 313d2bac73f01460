"""SIREN: self-anchored entropy regularisation at the choices of highest entropy.

SIREN: Rethinking Entropy Regularization in Large Reasoning Models, 2025.

- top-p mask, the entropy H of the most likely ids: `nucleus_entropy`, per choice `NucleusEntropy`
- H before the update, as a column: `OutputColumn`
- peak-entropy mask and penalty (h - target)^2 on the mean h of its choices, as slopes: `SelfAnchoredPenalty`
- the penalty's gradient in the loss: `LinearizedPenalty`
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from mmrl.annotators.base import Annotator
from mmrl.annotators.logprobs import ForwardAnnotator, score_rows
from mmrl.core.batch import Batch
from mmrl.core.columns import Column, register_columns
from mmrl.core.errors import check_interval
from mmrl.core.types import Context, PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.ops.logprob import pieces, precision
from mmrl.ops.masked import zero_outside
from mmrl.policies.text.statistics import Statistic

register_columns(
    {
        "nucleus_entropy": Column("[N, T]", "nats", "SIREN: entropy of the most likely ids alone, before the update"),
        "penalty_slope": Column("[N, T]", "1", "SIREN: slope of a penalty on a mean over the batch, per choice"),
    }
)


def nucleus_entropy(
    logits: Tensor,  # [N, T, V]
    mass: float,
    temperature: Tensor | float = 1.0,  # [N] or a number
) -> Tensor:  # [N, T] nats
    """Entropy of softmax(logits / temperature) renormalised over its most likely ids.

    S holds the ids in order of probability as long as their mass together is at most `mass`, and the most likely one
    always; ids that are exactly as likely as the last of them belong to it too. With q_v = p_v / sum_{u in S} p_u:
    H = -sum_{v in S} q_v log q_v, and dH / dx_v = -q_v (log q_v + H) inside S, 0 outside, S taken as constant.
    Source: Rethinking Entropy Regularization in Large Reasoning Models, 2025, top-p mask.
    """
    if logits.dim() != 3:
        raise ValueError(f"logits must be [N, T, V], got {tuple(logits.shape)}")
    temperature = torch.as_tensor(temperature, device=logits.device).to(precision(logits)).expand(len(logits))
    return _NucleusEntropy.apply(logits, mass, temperature)


class _NucleusEntropy(torch.autograd.Function):
    """Saves the logits, and the least logit of the nucleus and the normaliser of each position; works on slices."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, mass: float, temperature: Tensor) -> Tensor:
        entropy = torch.empty(logits.shape[:2], dtype=temperature.dtype, device=logits.device)
        least, log_z = torch.empty_like(entropy), torch.empty_like(entropy)
        for at in pieces(logits.shape):
            x = logits[at].to(temperature.dtype) / temperature[at[0], None, None]
            ordered = x.sort(-1, descending=True).values
            # (rows, choices, ids) bool in order of probability, whether the ids up to this one have at most the mass;
            # rounding may take the sum of all above 1, so that a whole distribution is not looked for by its mass
            inside = ordered.softmax(-1).cumsum(-1).cummax(-1).values <= (mass if mass < 1 else torch.inf)
            count = inside.sum(-1, keepdim=True).clamp(min=1)
            # (rows, choices) the least logit of the nucleus, from which backward restores it
            least[at] = ordered.gather(-1, count - 1).squeeze(-1)
            q, log_q, log_z[at] = _inside(x, least[at])
            entropy[at] = -(q * log_q).sum(-1)
        ctx.save_for_backward(logits, temperature, least, log_z, entropy)
        return entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_entropy: Tensor) -> tuple[Tensor, None, None]:
        logits, temperature, least, log_z, entropy = ctx.saved_tensors
        grad = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
        for at in pieces(logits.shape):
            x = logits[at].to(temperature.dtype) / temperature[at[0], None, None]
            q, log_q, _ = _inside(x, least[at], log_z[at])
            # (rows, choices, ids) gradient by the scaled logits: -q (log q + H) times d_entropy, 0 outside the nucleus
            slope = -q * (log_q + entropy[at][..., None]) * d_entropy[at][..., None]
            grad[at] = (slope / temperature[at[0], None, None]).to(logits.dtype)
        return grad, None, None


def _inside(x: Tensor, least: Tensor, log_z: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Return q and log q over the ids of the nucleus, 0 outside, and the log of the sum of exp(x) over the nucleus."""
    nucleus = (x >= least[..., None]) & (x > -torch.inf)
    if log_z is None:
        log_z = x.masked_fill(~nucleus, -torch.inf).logsumexp(-1)
    log_q = torch.where(nucleus, x - log_z[..., None], 0)
    return torch.where(nucleus, log_q.exp(), 0), log_q, log_z


@dataclass(frozen=True)
class NucleusEntropy(Statistic):
    """Entropy in nats of the renormalised top-p distribution: the most likely ids with at most `mass` together.

    Truncated sampling does not change it: it is about the distribution before anything was cut off.

    Args:
        mass: in (0, 1]; the most likely id always belongs.
    """

    mass: float = 0.8

    def __post_init__(self) -> None:
        check_interval("nucleus_entropy", "(0, 1]", mass=self.mass)

    def __call__(self, logits: Tensor, temperature: Tensor) -> Tensor:
        return nucleus_entropy(logits, self.mass, temperature)


@dataclass(frozen=True, kw_only=True)
class OutputColumn(ForwardAnnotator):
    """Store an output of the policy for each choice before this iteration's updates, such as an entropy.

    Args:
        part: name in the `extra` of its output.
        column: that it is written to; its own name when left out.
    """

    part: str
    column: str | None = None

    def needs(self) -> frozenset[str]:
        return frozenset({self.part})

    def writes(self) -> frozenset[str]:
        return frozenset({self.column or self.part})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        (column,) = self.writes()
        return batch.with_columns(**{column: score_rows(ctx.policy, batch, self._part, self.rows, ctx.device)})

    def _part(self, out: PolicyOutput) -> Tensor:
        if self.part not in out.extra:
            raise ValueError(f"the policy's output has no {self.part!r}; name it under model.policy.statistics")
        return out.extra[self.part]


@dataclass
class SelfAnchoredPenalty(Annotator):
    """Slopes of the self-anchored penalty (h - target)^2, h the mean of the largest entries of a column.

    With P the choices of all ranks whose entry is at or above the quantile and h the mean over P, the penalty is no sum
    over choices, but its gradient is that of sum_{P} slope * entry with slope = 2 (h - target) / |P|, and h is known
    before the updates. So `penalty_slope` holds 2 (h - target) n / |P| on P and 0 elsewhere, n the number of choices:
    with weights of a token mean a term `penalty_slope * entry` has the gradient of the penalty. Weights of
    `ConstantLength` divide by rows times a length, which stands in the place of n. The target is the h of the run's
    first iteration, and is saved in its checkpoints. Source: Rethinking Entropy Regularization in Large Reasoning
    Models, 2025, self-anchored regularisation.

    Args:
        column: the regularised statistic, [N, T].
        quantile: of the entries inside the mask; P are those at or above it.
        target: a number in place of the h of the first iteration.
        length: of `data.weighting`, if that is `ConstantLength`; None for a token mean.
    """

    column: str
    quantile: float = 0.8
    target: float | None = None
    length: int | None = None
    _target: float | None = field(default=None, init=False, repr=False)
    _latest: dict[str, float] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        check_interval("self_anchored_penalty", "[0, 1)", quantile=self.quantile)

    def writes(self) -> frozenset[str]:
        return frozenset({"penalty_slope"})

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", self.column})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        mask, value = batch["action_mask"], batch[self.column]
        # (choices of all processes,) entries, and the quantile that bounds P from below
        everyone = torch.cat(ctx.collector.gather([value[mask].double()]))
        rows = sum(ctx.collector.gather([int(mask.any(1).sum())]))
        if not len(everyone):
            return batch.with_columns(penalty_slope=torch.zeros(mask.shape))
        threshold = everyone.quantile(self.quantile)
        peak = everyone[everyone >= threshold]
        mean = float(peak.mean())
        if self._target is None:
            self._target = mean if self.target is None else self.target
        self._latest = {"mean": mean, "target": self._target, "fraction": len(peak) / len(everyone)}
        # 2 (h - target) n / |P|, with n the denominator of the loss
        num_choices = len(everyone) if self.length is None else rows * self.length
        slope = 2 * (mean - self._target) * num_choices / len(peak)
        return batch.with_columns(penalty_slope=torch.where(mask & (value >= threshold), slope, 0.0))

    def metrics(self, batch: Batch, ctx: Context) -> dict[str, float]:
        """mean: h; target; fraction: of the choices that are in P."""
        return self._latest

    def state_dict(self) -> dict[str, Any]:
        return {"target": self._target}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._target = state.get("target", self._target)


@dataclass(frozen=True)
class LinearizedPenalty(Term):
    """Linearised penalty: an entry of the policy's output times the slope of the penalty with respect to it.

    For a penalty on a mean over the batch, whose slope an annotator computed, such as `SelfAnchoredPenalty`.

    Args:
        part: name in the `extra` of the output.
        slope: column of slopes.
    """

    part: str
    slope: str = "penalty_slope"

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", self.slope})

    def needs(self) -> frozenset[str]:
        return frozenset({self.part})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        mask = batch["action_mask"]
        return zero_outside(out.extra[self.part], mask) * zero_outside(batch[self.slope], mask)

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """The entry of the output, under the name `part`."""
        return {self.part: zero_outside(out.extra[self.part], batch["action_mask"])}
