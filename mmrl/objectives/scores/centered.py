"""Centred scores: keep the two scores of a pair around zero."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.objectives.preference import read_scores
from mmrl.ops.preference import paired_margin


@dataclass(frozen=True)
class CenteredScores(Term):
    """Squared sum of a pair's scores, per row [N]: (value(preferred) + value(other))^2.

    The Bradley-Terry loss leaves a constant of each prompt open, which this fixes; its coefficient is small. Of several
    heads it is the mean. Source: Helping or Herding? Reward Model Ensembles Mitigate but do not Eliminate Reward
    Hacking, 2023, section 2, arXiv:2312.09244.
    """

    whole_groups = True

    def needs(self) -> frozenset[str]:
        return frozenset({"values"})

    def reads(self) -> frozenset[str]:
        return frozenset({"group", "preference"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        in_pair = batch["preference"].abs()  # adds both rows, where the sign subtracts one
        heads = read_scores(out, "centered_scores").unbind(1)
        squares = [paired_margin(head, in_pair, batch["group"]).square() for head in heads]
        return torch.where(in_pair != 0, torch.stack(squares).mean(0), 0)
