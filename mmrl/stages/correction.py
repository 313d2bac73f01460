"""Weights for choices that older weights, or another implementation of the same ones, sampled."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.batch import Batch
from mmrl.ops.correction import truncated, within
from mmrl.ops.ratio import Level, log_ratio
from mmrl.stages.base import Annotator
from mmrl.types import Context


class Correction(Annotator):
    """How much more likely the learner finds a choice before its update than the policy that sampled it, held finite.

    ratio = exp(old_logprobs - logprobs) per choice ("token"), of the row per choice ("sequence", a geometric mean), or
    of the row as one joint action ("row", the product). A demonstration was not sampled and counts 1. Terms multiply
    by the column when they name it, as in ClippedSurrogate(old="old_logprobs", correction="correction").
    """

    reads = frozenset({"mask", "logprobs", "old_logprobs", "is_demo"})
    writes = frozenset({"correction"})
    level: Level

    @abstractmethod
    def bounded(self, ratio: Tensor, mask: Tensor) -> Tensor:
        """The weights [N, T] from the ratios, 0 outside the mask."""

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        batch.require(self.reads, "annotator correction")
        mask = batch["mask"]
        weights = self.bounded(self._ratio(batch), mask)
        return batch.with_columns(correction=torch.where(batch["is_demo"][:, None] & mask, 1.0, weights))

    def metrics(self, batch: Batch, ctx: Context) -> dict[str, float]:
        """Over the sampled choices of all ranks: mean ratio; share cut; effective sample size as a share of them,
        (sum w)^2 / (n sum w^2), which is 1 when all count the same.
        """
        sampled = batch["mask"] & ~batch["is_demo"][:, None]
        ratio, weights = self._ratio(batch)[sampled].double(), batch["correction"][sampled].double()
        cut = (self.bounded(self._ratio(batch), sampled)[sampled] != self._ratio(batch)[sampled]).double()
        mine = (len(ratio), *(float(part.sum()) for part in (ratio, cut, weights, weights.square())))
        count, ratios, cuts, total, squares = map(math.fsum, zip(*ctx.gather([mine])))
        if not count:
            return {}
        effective = total**2 / (count * squares) if squares else 0.0
        return {"ratio": ratios / count, "cut": cuts / count, "effective": effective}

    def _ratio(self, batch: Batch) -> Tensor:
        return log_ratio(batch["old_logprobs"], batch["logprobs"], batch["mask"], self.level).exp()


@dataclass(frozen=True)
class TruncatedRatio(Correction):
    """The ratio of the learner's policy before its update to the one that sampled, at most `cap`.

    Args:
        cap: largest weight.
        level: the ratio of each choice ("token"), of the row per choice ("sequence", a geometric mean), or of the row
            as one joint action ("row").
    """

    cap: float = 2.0
    level: Level = "token"

    def __post_init__(self) -> None:
        if self.cap < 1:
            raise ValueError(f"truncated_ratio.cap must be at least 1, the ratio on policy, got {self.cap}")

    def bounded(self, ratio: Tensor, mask: Tensor) -> Tensor:
        return truncated(ratio, mask, self.cap)


@dataclass(frozen=True)
class MaskedRatio(Correction):
    """The ratio of the learner's policy before its update to the one that sampled, and 0 outside [low, high].

    Args:
        low: smallest ratio that counts.
        high: largest.
        level: the ratio of each choice ("token"), of the row per choice ("sequence", a geometric mean), or of the row
            as one joint action ("row").
    """

    low: float = 0.0
    high: float = 5.0
    level: Level = "token"

    def __post_init__(self) -> None:
        if not 0 <= self.low <= 1 <= self.high:
            raise ValueError(f"masked_ratio: need 0 <= low <= 1 <= high, got {self.low} and {self.high}")

    def bounded(self, ratio: Tensor, mask: Tensor) -> Tensor:
        return within(ratio, mask, self.low, self.high)
