"""Importance weights of choices that older weights, or another implementation of the same weights, sampled."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.annotators.base import Annotator
from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least, check_fraction
from mmrl.core.types import Context
from mmrl.ops.policy_gradient import ImportanceSamplingLevel, log_ratio, mask_ratio, truncate_ratio


class ImportanceWeights(Annotator):
    """Importance weights pi_old / pi_behavior of the stored choices, truncated or masked.

    ratio = exp(old_logprobs - behavior_logprobs) per choice ("token"), its geometric mean over a row ("sequence"), or
    its product over a row ("joint"). A demonstration was not sampled and gets 1. Terms multiply by the column when they
    name it, as in
    ClippedSurrogate(old="old_logprobs", importance_weights="importance_weights").
    """

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "behavior_logprobs", "old_logprobs", "is_demo"})

    def writes(self) -> frozenset[str]:
        return frozenset({"importance_weights"})

    importance_sampling_level: ImportanceSamplingLevel

    @abstractmethod
    def bound(self, ratio: Tensor, mask: Tensor) -> Tensor:
        """The weights [N, T] from the ratios, 0 outside the mask."""

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        mask = batch["action_mask"]
        weights = self.bound(self._ratio(batch), mask)
        return batch.with_columns(importance_weights=torch.where(batch["is_demo"][:, None] & mask, 1.0, weights))

    def metrics(self, batch: Batch, ctx: Context) -> dict[str, float]:
        """Metrics of the sampled choices of all ranks: ratio: mean; cut: fraction that is truncated or masked; ess,
        the effective sample size as a fraction, (sum w)^2 / (n sum w^2), which is 1 for equal weights.
        """
        sampled = batch["action_mask"] & ~batch["is_demo"][:, None]
        ratio, weights = self._ratio(batch)[sampled].double(), batch["importance_weights"][sampled].double()
        cut = (self.bound(self._ratio(batch), sampled)[sampled] != self._ratio(batch)[sampled]).double()
        mine = (len(ratio), *(float(part.sum()) for part in (ratio, cut, weights, weights.square())))
        count, ratios, cuts, total, squares = map(math.fsum, zip(*ctx.collector.gather([mine])))
        if not count:
            return {}
        ess = total**2 / (count * squares) if squares else 0.0
        return {"ratio": ratios / count, "cut": cuts / count, "ess": ess}

    def _ratio(self, batch: Batch) -> Tensor:
        return log_ratio(
            batch["old_logprobs"], batch["behavior_logprobs"], batch["action_mask"], self.importance_sampling_level
        ).exp()


@dataclass(frozen=True)
class TruncatedImportanceSampling(ImportanceWeights):
    """TIS: importance weights min(pi_old / pi_behavior, cap).

    Args:
        cap: largest weight.
        importance_sampling_level: "token", a ratio per choice; "sequence", the geometric mean of a row's ratios;
            "joint", their product.
    """

    cap: float = 2.0
    importance_sampling_level: ImportanceSamplingLevel = "token"

    def __post_init__(self) -> None:
        if self.cap < 1:
            raise ValueError(
                f"truncated_importance_sampling.cap must be at least 1, the ratio on policy, got {self.cap}"
            )

    def bound(self, ratio: Tensor, mask: Tensor) -> Tensor:
        return truncate_ratio(ratio, mask, self.cap)


@dataclass(frozen=True)
class MaskedImportanceSampling(ImportanceWeights):
    """MIS: importance weights pi_old / pi_behavior, set to 0 outside [min_ratio, max_ratio].

    Args:
        min_ratio: smallest ratio that is not masked.
        max_ratio: largest.
        importance_sampling_level: "token", a ratio per choice; "sequence", the geometric mean of a row's ratios;
            "joint", their product.
    """

    min_ratio: float = 0.0
    max_ratio: float = 5.0
    importance_sampling_level: ImportanceSamplingLevel = "token"

    def __post_init__(self) -> None:
        check_fraction("masked_importance_sampling", min_ratio=self.min_ratio)
        check_at_least(1, "masked_importance_sampling", max_ratio=self.max_ratio)

    def bound(self, ratio: Tensor, mask: Tensor) -> Tensor:
        return mask_ratio(ratio, mask, self.min_ratio, self.max_ratio)
