"""Loss weightings: the column `loss_weights` of one minibatch, which says how choices share the loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least

Total = Callable[[Tensor], Tensor]
"""Adds a number up over all processes."""


class Weighting(ABC):
    """Compute the loss_weights [N, T] of a minibatch; denominators are those of the whole minibatch on all ranks."""

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask"})

    @abstractmethod
    def __call__(self, batch: Batch, total: Total) -> Tensor: ...


# Each class calls `total` exactly once whatever the mask, so that no process waits for another in vain. A minibatch
# without a choice gets weights 0.


@dataclass(frozen=True)
class TokenMean(Weighting):
    """Every choice counts the same: w = action_mask / choices."""

    def __call__(self, batch: Batch, total: Total) -> Tensor:
        mask = batch["action_mask"].float()
        return mask / total(mask.sum()).clamp(min=1)


@dataclass(frozen=True)
class SequenceMean(Weighting):
    """Every row with a choice counts the same, and so do its choices: w = action_mask / choices of row / rows."""

    def __call__(self, batch: Batch, total: Total) -> Tensor:
        mask = batch["action_mask"].float()
        choices = mask.sum(1)
        rows = total((choices > 0).float().sum())
        return mask / choices.clamp(min=1)[:, None] / rows.clamp(min=1)


@dataclass(frozen=True)
class EpisodeMean(Weighting):
    """Every episode with a choice in the minibatch counts the same: w = action_mask / choices of episode / episodes."""

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "episode"})

    def __call__(self, batch: Batch, total: Total) -> Tensor:
        mask = batch["action_mask"].float()
        ids, episode = batch["episode"].unique(return_inverse=True)
        choices = mask.new_zeros(len(ids)).index_add(0, episode, mask.sum(1))
        episodes = total((choices > 0).float().sum())
        return mask / choices[episode].clamp(min=1)[:, None] / episodes.clamp(min=1)


@dataclass(frozen=True)
class ConstantLength(Weighting):
    """Every choice counts the same, whatever the rows' lengths are: w = action_mask / (rows * length).

    The weights sum to the mean row length over `length`, so a choice counts no less for being in a long row. Rows
    without a choice are not counted. Source: Understanding R1-Zero-Like Training, 2025, section 3, arXiv:2503.20783.

    Args:
        length: number of choices that a row's sum is divided by, usually sampling.max_tokens.
    """

    length: int

    def __post_init__(self) -> None:
        check_at_least(1, "constant_length", length=self.length)

    def __call__(self, batch: Batch, total: Total) -> Tensor:
        mask = batch["action_mask"].float()
        rows = total(batch["action_mask"].any(1).float().sum())
        return mask / (rows.clamp(min=1) * self.length)
