"""Imitation loss for actions in ordered bins: neighbours of the demonstrated bin count as partly right."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.ops.choice import MASKED_LOGIT


@dataclass(frozen=True)
class SmoothedNegativeLogLikelihood(Term):
    """Cross-entropy against a Gaussian around the demonstrated bin.

    term = - sum_b q_b log p_b,  q_b proportional to exp(-(b - action)^2 / (2 width^2)), normalised over the bins that
    can be chosen: not the last id of the layout "openvla".
    With few demonstrations, hard targets teach single bins; neighbours carry what the order of the bins means.

    Args:
        width: standard deviation of the targets, in bins.

    Raises:
        ValueError: a choice inside the mask has no bin that can be chosen.
    """

    width: float = 8.0

    def __post_init__(self) -> None:
        if self.width <= 0:
            raise ValueError(f"width must be > 0 bins, got {self.width}; for hard targets use NegativeLogLikelihood")

    def reads(self) -> frozenset[str]:
        return frozenset({"action", "action_mask"})

    def needs(self) -> frozenset[str]:
        return frozenset({"choice_logprobs"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        logprobs = out.extra.get("full_choice_logprobs", out.extra["choice_logprobs"])  # [N, T, B]
        bins = torch.arange(logprobs.shape[-1], device=logprobs.device)
        distance = (bins[:, None] - bins[None, :]) / self.width
        masked = logprobs <= MASKED_LOGIT
        nowhere = masked.all(dim=-1) & batch["action_mask"]
        if nowhere.any():
            row, choice = nowhere.nonzero()[0].tolist()
            action = int(batch["action"][row, choice])
            raise ValueError(
                f"smoothed imitation: choice {choice} of row {row} (demonstrated bin {action}) has no bin "
                "that can be chosen"
            )
        scores = (-0.5 * distance**2)[batch["action"]].masked_fill(masked, -torch.inf)
        targets = scores.softmax(dim=-1).nan_to_num(0)  # outside the mask there may be rows without any bin
        return -(targets * logprobs).sum(dim=-1)
