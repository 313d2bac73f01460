"""Pretraining: demonstrations with labels of the target, and the likelihoods of the labels.

ROCKET-3: Scalable Multi-Task Reinforcement Learning for Generalizable Spatial Intelligence in Visuomotor Agents, 2025.

- labels of each decision: `GoalViewDemonstrations`
- log p(visible) and log p(centroid), which are added to log p(action): `TargetVisibility`, `TargetCentroid`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from mmrl.core.batch import Batch
from mmrl.core.columns import Column, register_columns
from mmrl.core.types import Completion, Context, PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.policies.control.recurrent import MEMORY
from mmrl.rollouts.offline.demonstrations import Demonstrations

VISIBLE, CENTROID = "target_visible", "target_centroid"
register_columns(
    {
        VISIBLE: Column("[N]", "bool", "ROCKET-3: whether the target is in the agent's view"),
        CENTROID: Column(
            "[N, ...]",
            "1",
            "ROCKET-3: column and row of the target's centroid in the view, from 0 to 1; 0 if not in view",
        ),
    }
)


class GoalViewDemonstrations(Demonstrations):
    """Demonstrations that say of every decision whether and where the target is in view.

    The memory of each decision is empty: a policy unrolls an episode from its first.

    Args:
        cache_episodes: keep the encoded demonstrations in memory.
    """

    @classmethod
    def writes(cls) -> frozenset[str]:
        return super().writes() | {VISIBLE, CENTROID}

    def encode(self, raw: Mapping[str, Any], output: Any, ctx: Context) -> Completion:
        """Encode one decision of the expert with the labels of its view."""
        missing = {VISIBLE, CENTROID} - set(raw)
        if missing:
            raise ValueError(
                f"the demonstrations of task {ctx.task.name!r} lack {sorted(missing)}: take a simulator that labels "
                "its views, as sim=goal_views"
            )
        memory = np.zeros(getattr(ctx.policy, "memory_dims", 0), np.float32)
        completion = super().encode({**raw, MEMORY: memory}, output, ctx)
        completion.extra[VISIBLE] = torch.tensor(bool(raw[VISIBLE]))
        completion.extra[CENTROID] = torch.as_tensor(raw[CENTROID], dtype=torch.float32)
        return completion


@dataclass(frozen=True)
class TargetVisibility(Term):
    """Negative log-likelihood of whether the target is in view, per row, in nats."""

    def reads(self) -> frozenset[str]:
        return frozenset({VISIBLE})

    def needs(self) -> frozenset[str]:
        return frozenset({"visible_logits"})  # [N]

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        logits = out.extra["visible_logits"]
        return binary_cross_entropy_with_logits(logits, batch[VISIBLE].to(logits.dtype), reduction="none")

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """accuracy: share of rows in which the more probable answer is right."""
        return {"accuracy": ((out.extra["visible_logits"] > 0) == batch[VISIBLE]).float()}


@dataclass(frozen=True)
class TargetCentroid(Term):
    """Negative log-likelihood of the cell with the target's centroid, per row, in nats; 0 where it is not in view.

    The view has K x K cells; cell (row i, column j) has the number K i + j.
    """

    def reads(self) -> frozenset[str]:
        return frozenset({VISIBLE, CENTROID})

    def needs(self) -> frozenset[str]:
        return frozenset({"cell_logits"})  # [N, K * K]

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        logits = out.extra["cell_logits"]
        loss = cross_entropy(logits, find_cells(batch[CENTROID], isqrt(logits.shape[1])), reduction="none")
        return torch.where(batch[VISIBLE], loss, 0)


def find_cells(
    centroid: Tensor,  # [N, 2] column and row, from 0 to 1
    cells: int,
) -> Tensor:  # [N]
    """Number of the cell with each centroid, in a grid of cells x cells."""
    column, row = (centroid * cells).long().clamp(max=cells - 1).unbind(1)
    return row * cells + column
