"""Terms of learning a map of states on which one step is at most one long."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mmrl.batch import Batch
from mmrl.objectives.objective import Term
from mmrl.ops.masked import zero_outside
from mmrl.types import PolicyOutput


@dataclass(frozen=True)
class NegativeProgress(Term):
    """How far a step goes along its skill, to be raised: -(phi(s') - phi(s)) . z. Source: arXiv:2310.08887, eq. 10."""

    reads = frozenset({"mask"})
    needs = frozenset({"progress"})  # [N, T]

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return -zero_outside(out.extra["progress"], batch["mask"])


@dataclass(frozen=True)
class PricedSlack(Term):
    """The price of steps that are too long, to be lowered: -price * slack, the price held fixed."""

    reads = frozenset({"mask"})
    needs = frozenset({"slack", "log_price"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return -out.extra["log_price"].detach().exp() * zero_outside(out.extra["slack"], batch["mask"])


@dataclass(frozen=True)
class SlackPrice(Term):
    """Moves the price until steps are as long as they may be: log price * slack, the slack held fixed.

    Where steps are too long the slack is negative and the price rises.
    """

    reads = frozenset({"mask"})
    needs = frozenset({"slack", "log_price"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return out.extra["log_price"] * zero_outside(out.extra["slack"].detach(), batch["mask"])

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        mask = batch["mask"]
        price = out.extra["log_price"].detach().exp().expand(mask.shape)
        return {"price": price, "slack": zero_outside(out.extra["slack"].detach(), mask)}
