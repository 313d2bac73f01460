"""Contrastive term of a reward model: a pair's features resemble themselves more than those of other pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from mmrl.core.batch import Batch
from mmrl.core.errors import check_interval, check_positive
from mmrl.core.rng import derive_seed
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.ops.preference import paired_margin


def info_nce(
    first: Tensor,  # [M, D]
    second: Tensor,  # [M, D]
    temperature: float,
) -> Tensor:  # [M] nats
    """InfoNCE: -log exp(cos(a_i, b_i) / t) / sum_j exp(cos(a_i, b_j) / t), with b_i the positive of a_i.

    Source: SimCSE: Simple Contrastive Learning of Sentence Embeddings, 2021, equation 1, arXiv:2104.08821.
    """
    cosines = normalize(first, dim=-1) @ normalize(second, dim=-1).T
    return cross_entropy(cosines / temperature, torch.arange(len(first), device=first.device), reduction="none")


@dataclass(frozen=True)
class ContrastiveLoss(Term):
    """Contrastive loss of the last token's features, per row [N].

    Two masks of dropout on one feature are positives, the features of the other rows of the micro-batch are negatives;
    with over=difference the features are h(preferred) - h(other) of pairs. The masks depend on the rows alone, so that
    a resumed run draws the same ones. It needs policy.features=true. Source: Secrets of RLHF in Large Language Models
    Part II: Reward Modeling, 2024, section 3.2, arXiv:2401.06080, with SimCSE's dropout on the features in place of
    dropout inside the network.

    Args:
        temperature: of InfoNCE.
        dropout: share of the features that a mask sets to zero.
        over: answer, or difference of the two answers of a pair.
    """

    temperature: float = 0.05
    dropout: float = 0.1
    over: Literal["answer", "difference"] = "difference"

    whole_groups = True
    whole_micro_batches = True

    def __post_init__(self) -> None:
        check_positive("contrastive_loss", temperature=self.temperature)
        check_interval("contrastive_loss", "(0, 1)", dropout=self.dropout)

    def needs(self) -> frozenset[str]:
        return frozenset({"features"})

    def reads(self) -> frozenset[str]:
        return frozenset({"group", "preference"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        if "features" not in out.extra:
            raise ValueError("contrastive_loss needs the features of a scorer: policy.features=true")
        features, sign = out.extra["features"], batch["preference"]
        rows = (sign != 0) if self.over == "answer" else sign > 0  # one row a pair
        if self.over == "difference":
            features = paired_margin(features, sign, batch["group"])
        if not bool(rows.any()):
            return 0 * features.sum(1)
        # in the order of pairs, so that neither masks nor loss depend on the order of rows
        order = (2 * batch["group"] + (sign > 0)).masked_fill(~rows, torch.iinfo(torch.long).max).argsort()
        place = order[: int(rows.sum())]
        chosen = features[place]
        generator = torch.Generator().manual_seed(derive_seed("contrastive", *batch["group"][place].tolist()))
        losses = info_nce(self._drop(chosen, generator), self._drop(chosen, generator), self.temperature)
        values = features.new_zeros(len(features)).index_put((place,), losses)
        if self.over == "answer":
            return values
        in_pair = sign.clamp(min=0)  # the preferred row's loss, which both rows of the pair carry
        return torch.where(sign != 0, paired_margin(values, in_pair, batch["group"]), 0)

    def _drop(self, features: Tensor, generator: torch.Generator) -> Tensor:
        keep = torch.rand(features.shape, generator=generator) >= self.dropout
        return features * keep.to(features.device) / (1 - self.dropout)
