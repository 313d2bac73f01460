"""Secrets of RLHF II: relabel pairs by the preference strength that an ensemble of reward models gives them.

Secrets of RLHF in Large Language Models Part II: Reward Modeling, 2024, arXiv:2401.06080.

- strength of a pair: mean and standard deviation over M models of r(preferred) - r(rejected): `preference_strength`
- the weakest pairs are turned, the next ones get a soft label, all a margin: `StrengthLabels`
- the loss: `BradleyTerryLoss` with soft_labels and margins; the contrastive term: `ContrastiveLoss`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.annotators.logprobs import ForwardAnnotator, score_rows
from mmrl.core.batch import Batch
from mmrl.core.errors import check_fraction
from mmrl.core.types import Context, PolicyOutput
from mmrl.objectives.preference import read_scores
from mmrl.ops.preference import paired_margin


def preference_strength(
    margins: Tensor,  # [M, P] of M models
) -> tuple[Tensor, Tensor]:  # [P], [P]
    """Preference strength of pairs: mean over models of the margin, and its population standard deviation.

    Source: Secrets of RLHF II, 2024, section 2.2, equations 4 and 5, arXiv:2401.06080.
    """
    return margins.mean(0), margins.std(0, correction=0)


def find_thresholds(strengths: Sequence[float], shares: Sequence[float]) -> list[float]:
    """Upper ends of the weakest shares of the pairs; -inf for a share of none."""
    ordered = sorted(strengths)
    counts = [round(share * len(ordered)) for share in shares]
    return [ordered[count - 1] if count else -torch.inf for count in counts]


@dataclass(frozen=True, kw_only=True)
class StrengthLabels(ForwardAnnotator):
    """Relabels pairs by their preference strength mu under frozen reward models, and writes labels and margins.

    The `flip` share of the pairs with the lowest mu has wrong labels: preferred and rejected are exchanged, and mu
    becomes -mu. The next `soften` share is ambiguous and gets the soft label sigmoid(mu). The column
    `preference_margin` is max(mu, 0), the adaptive margin. Shares are those of the pairs of an iteration on all
    processes, so `data.num_prompts` should be the number of training pairs. Source: Secrets of RLHF II, 2024, section
    2.3, arXiv:2401.06080.

    Args:
        members: names in model.frozen_models, each a scorer with one or several heads.
        flip: share of the pairs whose labels are turned.
        soften: share of the pairs, after those, that get soft labels.
    """

    members: Sequence[str] = ("member_1", "member_2", "member_3")
    flip: float = 0.2
    soften: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction("strength_labels", flip=self.flip, soften=self.soften)
        if not self.members or self.flip + self.soften > 1:
            raise ValueError(
                f"strength_labels: name at least one model, and flip + soften must be at most 1, got "
                f"{list(self.members)}, {self.flip} and {self.soften}"
            )

    def reads(self) -> frozenset[str]:
        return super().reads() | {"preference"}

    def writes(self) -> frozenset[str]:
        return frozenset({"preference", "preference_margin", "preference_probability"})

    def models(self) -> frozenset[str]:
        return frozenset(self.members)

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        sign = batch["preference"]
        # [N, M] scores of all heads of all models, then margins of each row's pair [M, N]
        scores = torch.cat([self._score(batch, ctx, name) for name in self.members], 1)
        strength, _ = preference_strength(paired_margin(scores, sign, batch["group"]).T)
        # one row of each pair counts, on all processes
        strengths = ctx.collector.gather(strength[sign > 0].tolist())
        turned, ambiguous = find_thresholds(strengths, (self.flip, self.flip + self.soften))
        flipped, softened = strength <= turned, (strength > turned) & (strength <= ambiguous)
        return batch.with_columns(
            preference=torch.where(flipped, -sign, sign),
            preference_probability=torch.where(softened, strength.sigmoid(), 1.0),
            preference_margin=torch.where(flipped, -strength, strength).clamp(min=0),
        )

    def _score(self, batch: Batch, ctx: Context, name: str) -> Tensor:
        """[N, K] of one model."""
        if name not in ctx.models:
            raise KeyError(f"strength_labels: the learner has no model {name!r}, only {sorted(ctx.models)}")
        return score_rows(ctx.models[name], batch, _heads, self.rows, ctx.device)


def _heads(out: PolicyOutput) -> Tensor:
    return read_scores(out, "strength_labels")
