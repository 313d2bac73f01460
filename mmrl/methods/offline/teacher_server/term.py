"""GKD with a teacher on a server: generalised JSD over the tokens that it reports, and one class of all others."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import check_fraction
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.ops.distillation import generalised_jsd
from mmrl.ops.masked import zero_outside

NOTHING = -1e4
"""Log-probability of an entry that fills up, of student and teacher alike: it adds exactly 0."""
SMALLEST = 1e-12
"""Least probability of all tokens that the teacher does not report."""


@dataclass(frozen=True)
class ServerGKDLoss(Term):
    """GKD loss over the K tokens that the teacher reports and one class of all others, at each choice, in nats.

    With K the whole vocabulary it is `GKDLoss`. With fewer it is the divergence of the coarser distributions, which is
    never larger. Source: On-Policy Distillation of Language Models, 2023, equation 1, arXiv:2306.13649.

    Args:
        beta: 0 for the forward KL(teacher || student), 1 for the reverse KL(student || teacher), the JSD between.
    """

    beta: float = 0.5

    def __post_init__(self) -> None:
        check_fraction("gkd_loss", beta=self.beta)

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "teacher_ids", "teacher_logprobs"})

    def needs(self) -> frozenset[str]:
        return frozenset({"choice_logprobs"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        student, ids = out.extra["choice_logprobs"], batch["teacher_ids"]
        vocabulary = student.shape[-1]
        if int(ids.max()) >= vocabulary:
            raise ValueError(
                f"gkd_loss: the teacher reports id {int(ids.max())} and the policy has {vocabulary} ids; a teacher of "
                "another tokenizer is for method=span_distillation"
            )
        # [N, T, K] of the reported ids
        present = ids >= 0
        p = torch.where(present, batch["teacher_logprobs"].to(student.dtype), NOTHING)
        q = torch.where(present, student.gather(-1, ids.clamp(min=0)), NOTHING)
        if ids.shape[-1] < vocabulary:  # [N, T, K + 1] with all others
            rest = (1 - torch.where(present, p.exp(), 0).sum(-1, keepdim=True)).clamp(min=SMALLEST).log()
            others = student.masked_fill(_mark(ids, present, vocabulary), NOTHING).logsumexp(-1, keepdim=True)
            p, q = torch.cat([p, rest], -1), torch.cat([q, others], -1)
        return zero_outside(generalised_jsd(q, p, self.beta), batch["action_mask"])


def _mark(ids: Tensor, present: Tensor, vocabulary: int) -> Tensor:
    """Return which of all ids [N, T, V] are among the present ones [N, T, K], bool."""
    n, t, _ = present.nonzero(as_tuple=True)
    marked = torch.zeros(*ids.shape[:2], vocabulary, dtype=torch.bool, device=ids.device)
    marked[n, t, ids[present]] = True
    return marked
