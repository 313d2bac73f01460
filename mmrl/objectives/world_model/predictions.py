"""Losses of a world model on sequences: reconstruction, reward, continuation and the KL divergence of its states."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.ops.masked import zero_outside


def after_first(
    mask: Tensor,  # [N, T] bool
) -> Tensor:  # [N, T] bool
    """The mask without the first observation of each sequence, of which the decision before it is not known."""
    return mask & (torch.arange(mask.shape[1], device=mask.device) > 0)


@dataclass(frozen=True)
class Reconstruction(Term):
    """Reconstruction: -log N(observation; decoded mean, 1) in nats, without its constant.

    Half the sum of squared errors of all pixels in [-0.5, 0.5], and of the state vector. Source: Dream to Control,
    2020, equation 10, arXiv:1912.01603.
    """

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "observed"})

    def needs(self) -> frozenset[str]:
        return frozenset({"reconstruction_error"})  # [N, T]

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return zero_outside(out.extra["reconstruction_error"], batch["action_mask"] & batch["observed"])


@dataclass(frozen=True)
class RewardPrediction(Term):
    """Reward loss: -log N(r; r_hat, 1) in nats, without its constant, r being the reward of the decision before."""

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "previous_reward"})

    def needs(self) -> frozenset[str]:
        return frozenset({"reward_prediction"})  # [N, T]

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        error = out.extra["reward_prediction"] - batch["previous_reward"]
        return 0.5 * zero_outside(error, after_first(batch["action_mask"])).square()


@dataclass(frozen=True)
class ContinuationPrediction(Term):
    """Continuation loss: binary cross-entropy of whether the episode goes on, in nats."""

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "continues"})

    def needs(self) -> frozenset[str]:
        return frozenset({"continuation_logits"})  # [N, T]

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        mask = after_first(batch["action_mask"])
        logits, target = (zero_outside(each, mask) for each in (out.extra["continuation_logits"], batch["continues"]))
        return zero_outside(binary_cross_entropy_with_logits(logits, target, reduction="none"), mask)


@dataclass(frozen=True)
class PosteriorKL(Term):
    """KL loss of latent states: max(free_nats, mean KL(posterior || prior)), in nats.

    The mean is over the weighted observations of the micro-batch; below `free_nats` it has no gradient. Source: Dream
    to Control, 2020, appendix, arXiv:1912.01603, and released code.

    Args:
        free_nats: information about each observation that costs nothing.
    """

    whole_micro_batches = True

    free_nats: float = 3.0

    def __post_init__(self) -> None:
        check_at_least(0, "posterior_kl", free_nats=self.free_nats)

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "loss_weights"})

    def needs(self) -> frozenset[str]:
        return frozenset({"information"})  # [N, T]

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        mask, weights = batch["action_mask"], batch["loss_weights"]
        information = zero_outside(out.extra["information"], mask)
        with torch.no_grad():
            mean = (information * weights).sum() / weights.sum().clamp(min=torch.finfo(weights.dtype).tiny)
        return torch.where(mean > self.free_nats, information, zero_outside(information * 0 + self.free_nats, mask))

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """nats: the KL divergence itself."""
        return {"nats": zero_outside(out.extra["information"], batch["action_mask"])}
