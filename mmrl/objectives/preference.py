"""Preference losses: DPO and its variants, SimPO, ORPO, KTO, Bradley-Terry for reward models."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import check_interval, check_positive
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.ops.masked import masked_mean, masked_sum, zero_outside
from mmrl.ops.preference import (
    bradley_terry_loss,
    hinge_loss,
    ipo_loss,
    kto_loss,
    log_odds,
    paired_margin,
    robust_loss,
    smooth_label,
)

MARGIN = "preference_margin"
PROBABILITY = "preference_probability"


def read_pair_column(batch: Batch, column: str, part: str, option: str) -> Tensor:
    """Read a column [N] of the pairs' data; rows of no pair have 0.

    Raises:
        ValueError: a pair lacks it.
    """
    values = batch[column]
    rows = batch["preference"] != 0
    if bool((rows & values.isnan()).any()):
        raise ValueError(
            f"{part}.{option}=true: the pairs have no column {column.removeprefix('preference_')!r}; add it to every "
            f"row of the file, or leave {option} out"
        )
    return torch.where(rows, values, 0)


@dataclass(frozen=True)
class DPOLoss(Term):
    """DPO loss of a pair from its margin of log-ratios to a reference, per row [N].

    m = d(preferred) - d(other), with d a row's log-prob minus the reference's, summed over its choices ("sum") or their
    mean ("mean"). sigmoid: -log sigmoid(beta m - target_margin), DPO, with label_smoothing cDPO; robust: the same with
    label_smoothing e, without bias under labels that are flipped with probability e; ipo: (m - 1 / (2 beta))^2; hinge:
    max(0, 1 - beta m), SLiC. SimPO is sigmoid with a target margin, reduction="mean" and no reference. Several
    references with weights are the reference exp(sum_k weight_k log p_k), a geometric mixture. Both rows of a pair
    carry its loss, so that weights that count rows alike (`SequenceMean`) count pairs alike; minibatches keep pairs
    together. Source: Direct Preference Optimization, 2023, equation 7, arXiv:2305.18290; SimPO, 2024, equation 6,
    arXiv:2405.14734.

    Args:
        loss_type: sigmoid, robust, ipo or hinge.
        beta: strength of the regularisation towards the reference, per nat.
        label_smoothing: assumed fraction of pairs with the wrong label, as in cDPO; sigmoid and robust only.
        target_margin: SimPO's gamma, by which beta m has to exceed 0; sigmoid only.
        reduction: of the log-ratios of a row's choices.
        reference: column of the reference's log-probs, or weights of several by column, which sum to 1; None compares
            the policy's own.
        margins: subtract the column `margin` of each pair from beta m, as a target margin of its own; sigmoid only.
        soft_labels: take the column `probability` of each pair as its label; sigmoid only.
    """

    loss_type: Literal["sigmoid", "robust", "ipo", "hinge"] = "sigmoid"
    beta: float = 0.1
    label_smoothing: float = 0.0
    target_margin: float = 0.0
    reduction: Literal["sum", "mean"] = "sum"
    reference: str | dict[str, float] | None = "ref_logprobs"
    margins: bool = False
    soft_labels: bool = False

    whole_groups = True

    def __post_init__(self) -> None:
        check_positive("dpo_loss", beta=self.beta)
        check_interval("dpo_loss", "[0, 0.5)", label_smoothing=self.label_smoothing)
        for name in ("label_smoothing", "target_margin", "margins", "soft_labels"):
            takes = ("sigmoid", "robust") if name == "label_smoothing" else ("sigmoid",)
            if getattr(self, name) and self.loss_type not in takes:
                raise ValueError(
                    f"dpo_loss.{name} belongs to loss_type={' or '.join(takes)}, not to {self.loss_type!r}"
                )
        if self.references:
            check_positive("dpo_loss.reference", **self.references)
        if self.references and not math.isclose(sum(self.references.values()), 1, abs_tol=1e-6):
            raise ValueError(
                f"dpo_loss.reference: the weights {dict(self.references)} must sum to 1, so that the mixture is as "
                "strong as one reference; beta is the strength"
            )

    @property
    def references(self) -> Mapping[str, float]:
        """Weights of the references by column; empty without one."""
        return {self.reference: 1.0} if isinstance(self.reference, str) else self.reference or {}

    def reads(self) -> frozenset[str]:
        optional = {MARGIN: self.margins, PROBABILITY: self.soft_labels}
        read = (column for column, is_read in optional.items() if is_read)
        return frozenset({"action_mask", "group", "preference", *self.references, *read})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        margin = self._margin(out, batch)
        target: float | Tensor = self.target_margin
        smoothing: float | Tensor = self.label_smoothing
        if self.margins:
            target = target + read_pair_column(batch, MARGIN, "dpo_loss", "margins")
        if self.soft_labels:
            probability = read_pair_column(batch, PROBABILITY, "dpo_loss", "soft_labels")
            smoothing = smooth_label(probability, self.label_smoothing)
        loss = {
            "sigmoid": lambda: bradley_terry_loss(self.beta * margin - target, smoothing),
            "robust": lambda: robust_loss(self.beta * margin, self.label_smoothing),
            "ipo": lambda: ipo_loss(margin, 1 / (2 * self.beta)),
            "hinge": lambda: hinge_loss(self.beta * margin),
        }[self.loss_type]()
        return torch.where(batch["preference"] != 0, loss, 0)

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """margin: nats; accuracy: fraction of pairs whose preferred row gained more."""
        margin = self._margin(out, batch)
        return {"margin": margin, "accuracy": (margin > 0).to(margin.dtype)}

    def _margin(self, out: PolicyOutput, batch: Batch) -> Tensor:
        mask = batch["action_mask"]
        gained = zero_outside(out.logprobs, mask)
        for column, weight in self.references.items():
            gained = gained - weight * zero_outside(batch[column], mask)
        joined = masked_sum(gained, mask, dim=1) if self.reduction == "sum" else masked_mean(gained, mask, dim=1)
        return paired_margin(joined, batch["preference"], batch["group"])


@dataclass(frozen=True)
class ORPOLoss(Term):
    """ORPO loss of a pair without a reference, per row [N]: the chosen row's NLL and the odds ratio of both rows.

    loss = -l(chosen) - beta log sigmoid(log odds(chosen) - log odds(rejected)), with l the mean log-prob of a row's
    choices and odds = p / (1 - p) of p = exp(l). Both rows of a pair carry its loss. Source: ORPO: Monolithic
    Preference Optimization without Reference Model, 2024, equations 4 to 7, arXiv:2403.07691.

    Args:
        beta: weight of the odds ratio, the paper's lambda.
    """

    beta: float = 0.1

    whole_groups = True

    def __post_init__(self) -> None:
        check_positive("orpo_loss", beta=self.beta)

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "group", "preference"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        logprob, margin = self._logprob_and_margin(out, batch)
        loss = self.beta * bradley_terry_loss(margin) + self._nll(logprob, batch)
        return torch.where(batch["preference"] != 0, loss, 0)

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """margin: log of the odds ratio; accuracy: fraction of pairs where it is positive; nll: nats per choice."""
        logprob, margin = self._logprob_and_margin(out, batch)
        return {"margin": margin, "accuracy": (margin > 0).to(margin.dtype), "nll": self._nll(logprob, batch)}

    def _logprob_and_margin(self, out: PolicyOutput, batch: Batch) -> tuple[Tensor, Tensor]:
        logprob = masked_mean(out.full_logprobs, batch["action_mask"], dim=1)
        return logprob, paired_margin(log_odds(logprob), batch["preference"], batch["group"])

    def _nll(self, logprob: Tensor, batch: Batch) -> Tensor:
        """[N] the NLL of the preferred row of each row's group."""
        return -paired_margin(logprob, batch["preference"].clamp(min=0), batch["group"])


@dataclass(frozen=True)
class KTOLoss(Term):
    """KTO loss of single desirable and undesirable completions, per row [N]; no pairs are needed.

    loss = w (1 - sigmoid(beta s (d - z0))), with d a row's log-prob minus the reference's, s = 1 and w =
    desirable_weight where `preference` is positive, s = -1 and w = undesirable_weight where it is negative, and the
    reference point z0 of the annotator `MismatchedKL`. Source: KTO: Model Alignment as Prospect Theoretic Optimization,
    2024, section 4.1, arXiv:2402.01306.

    Args:
        beta: strength of the regularisation towards the reference, per nat.
        desirable_weight: factor of desirable rows.
        undesirable_weight: factor of undesirable rows; the paper wants weight times number alike, within 4/3.
    """

    beta: float = 0.1
    desirable_weight: float = 1.0
    undesirable_weight: float = 1.0

    def __post_init__(self) -> None:
        check_positive("kto_loss", beta=self.beta, desirable_weight=self.desirable_weight)
        check_positive("kto_loss", undesirable_weight=self.undesirable_weight)

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "preference", "ref_logprobs", "reference_point"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        sign = batch["preference"]
        loss = kto_loss(self._log_ratio(out, batch), sign, batch["reference_point"], self.beta)
        weight = torch.where(sign > 0, self.desirable_weight, self.undesirable_weight)
        return torch.where(sign != 0, weight * loss, 0)

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """reward: beta d; accuracy: fraction of rows on their side of the reference point."""
        apart = self._log_ratio(out, batch)
        right = batch["preference"] * (apart - batch["reference_point"]) > 0
        return {"reward": self.beta * apart, "accuracy": right.to(apart.dtype)}

    def _log_ratio(self, out: PolicyOutput, batch: Batch) -> Tensor:
        mask = batch["action_mask"]
        return masked_sum(out.logprobs - batch["ref_logprobs"], mask, dim=1)


@dataclass(frozen=True)
class BradleyTerryLoss(Term):
    """Bradley-Terry loss of a reward model, per row [N]: -log sigmoid(value(preferred) - value(other) - margin).

    Of a model with several heads it is the mean of the heads' losses: each head learns the pairs by itself. With a
    soft label p it is -p log sigmoid(d) - (1 - p) log sigmoid(-d). Source: Llama 2, 2023, equation 2 with margins,
    arXiv:2307.09288; Secrets of RLHF in Large Language Models Part II: Reward Modeling, 2024, section 2.3 with soft
    labels and adaptive margins, arXiv:2401.06080.

    Args:
        label_smoothing: assumed fraction of pairs with the wrong label.
        margins: subtract the column `margin` of each pair from the difference of its scores.
        soft_labels: take the column `probability` of each pair as its label.
    """

    label_smoothing: float = 0.0
    margins: bool = False
    soft_labels: bool = False

    whole_groups = True

    def __post_init__(self) -> None:
        check_interval("bradley_terry_loss", "[0, 0.5)", label_smoothing=self.label_smoothing)

    def needs(self) -> frozenset[str]:
        return frozenset({"values"})

    def reads(self) -> frozenset[str]:
        optional = {MARGIN: self.margins, PROBABILITY: self.soft_labels}
        return frozenset({"group", "preference", *(column for column, is_read in optional.items() if is_read)})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        smoothing: float | Tensor = self.label_smoothing
        if self.soft_labels:
            probability = read_pair_column(batch, PROBABILITY, "bradley_terry_loss", "soft_labels")
            smoothing = smooth_label(probability, self.label_smoothing)
        losses = []
        for margin in self._margins(out, batch):
            if self.margins:
                margin = margin - read_pair_column(batch, MARGIN, "bradley_terry_loss", "margins")
            losses.append(bradley_terry_loss(margin, smoothing))
        loss = losses[0] if len(losses) == 1 else torch.stack(losses).mean(0)
        return torch.where(batch["preference"] != 0, loss, 0)

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """margin: in units of the score; accuracy: fraction of pairs that the scorer orders as labelled."""
        margins = self._margins(out, batch)
        margin = margins[0] if len(margins) == 1 else torch.stack(margins).mean(0)
        return {"margin": margin, "accuracy": (margin > 0).to(margin.dtype)}

    def _margins(self, out: PolicyOutput, batch: Batch) -> list[Tensor]:
        """[N] of each head."""
        scores = read_scores(out, "bradley_terry_loss")
        return [paired_margin(head, batch["preference"], batch["group"]) for head in scores.unbind(1)]


def read_scores(out: PolicyOutput, part: str) -> Tensor:
    """Read the scores [N, K] of K heads from the output of a scorer.

    Raises:
        ValueError: the policy is no scorer; the message names the part that asks.
    """
    if out.values is None or out.values.dim() != 1:
        raise ValueError(f"{part} needs values, one per row, as a scorer gives them: policy=tiny_scorer")
    return out.extra.get("scores", out.values[:, None])
