"""Terms of learning from a critic: fit it, climb it, and keep a bounded quantity at its bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from mmrl.batch import Batch
from mmrl.objectives.objective import Term
from mmrl.ops.masked import zero_outside
from mmrl.types import PolicyOutput


@dataclass(frozen=True)
class SquaredQ(Term):
    """Half the squared error of every critic: sum_k 0.5 (Q_k - R)^2, with R the column `returns`, per row or choice."""

    reads = frozenset({"mask", "returns"})
    needs = frozenset({"q"})  # [N, T, K]

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        mask, returns = batch["mask"], batch["returns"]
        returns = zero_outside(returns if returns.dim() == 2 else returns[:, None], mask)
        error = out.extra["q"] - returns[..., None]
        return 0.5 * zero_outside(error.square().sum(dim=-1), mask)

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        return {"q": zero_outside(out.extra["q"].mean(dim=-1), batch["mask"])}


@dataclass(frozen=True)
class NegativeQ(Term):
    """What the critics say of a choice, to be raised: -Q.

    Args:
        over: which of the K critics: the least, their mean, or the first.
    """

    over: Literal["min", "mean", "first"] = "min"

    reads = frozenset({"mask"})
    needs = frozenset({"q"})  # [N, T, K]

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        q = out.extra["q"]
        value = {"min": lambda: q.amin(dim=-1), "mean": lambda: q.mean(dim=-1), "first": lambda: q[..., 0]}[self.over]()
        return -zero_outside(value, batch["mask"])


@dataclass(frozen=True)
class PricedLogprob(Term):
    """The price of being certain: price * log pi, the price held fixed. Source: arXiv:1812.05905, equation 7."""

    reads = frozenset({"mask"})
    needs = frozenset({"log_price"})  # [1]

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return out.extra["log_price"].detach().exp() * zero_outside(out.logprobs, batch["mask"])


@dataclass(frozen=True)
class EntropyPrice(Term):
    """Moves a price until the entropy is what it should be: -log price * (log pi + entropy), log pi held fixed.

    Where the entropy -log pi is below its bound the price rises, and the other way round.
    Source: arXiv:1812.05905, equation 18, with the logarithm of the price in its place, which has the same sign.

    Args:
        entropy: the bound, nats; for an action of A dimensions in [-1, 1] usually -A.
    """

    entropy: float

    reads = frozenset({"mask"})
    needs = frozenset({"log_price"})  # [1]

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return -out.extra["log_price"] * zero_outside(out.logprobs.detach() + self.entropy, batch["mask"])

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        mask = batch["mask"]
        price = out.extra["log_price"].detach().exp().expand(mask.shape)
        return {"price": price, "entropy": zero_outside(-out.logprobs.detach(), mask)}
