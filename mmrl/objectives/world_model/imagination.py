"""Losses of an actor and a critic that learn from imagined trajectories."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.objectives.value import SquaredValue
from mmrl.ops.masked import zero_outside


@dataclass(frozen=True)
class ImaginedReturn(Term):
    """Actor loss of Dreamer: maximise the lambda-returns of imagined decisions, times the chance to reach them.

    Its gradient is that of the returns through the world model. Source: Dream to Control, 2020, equation 7,
    arXiv:1912.01603.
    """

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask"})

    def needs(self) -> frozenset[str]:
        return frozenset({"returns", "reach"})  # [N, T]

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return -zero_outside(out.extra["reach"] * out.extra["returns"], batch["action_mask"])

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """return: the lambda-return of the world model."""
        return {"return": zero_outside(out.extra["returns"], batch["action_mask"])}


@dataclass(frozen=True)
class ImaginedSquaredValue(SquaredValue):
    """Critic loss of Dreamer: half the squared error of lambda-returns, times the chance to reach their states.

    Source: Dream to Control, 2020, equation 8, arXiv:1912.01603.
    """

    def reads(self) -> frozenset[str]:
        return super().reads() | {"reach"}

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return super().__call__(out, batch) * zero_outside(batch["reach"], batch["action_mask"])
