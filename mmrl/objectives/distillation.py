"""Distillation losses: the divergence between the policy and a teacher at every choice."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import check_fraction
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.ops.distillation import generalised_jsd
from mmrl.ops.masked import zero_outside


@dataclass(frozen=True)
class GKDLoss(Term):
    """GKD loss: generalised JSD between a teacher and the policy, its student, at each choice, in nats.

    Over all tokens of the vocabulary, on the student's own completions (on-policy distillation) or on demonstrations;
    samples have no gradient. Source: On-Policy Distillation of Language Models, 2023, equation 1, arXiv:2306.13649.

    Args:
        beta: 0 for the forward KL(teacher || student), 1 for the reverse KL(student || teacher), the JSD between.
        teacher: its name in `model.frozen_models`.
    """

    beta: float = 0.5
    teacher: str = "teacher"

    def __post_init__(self) -> None:
        check_fraction("gkd_loss", beta=self.beta)

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask"})

    def needs(self) -> frozenset[str]:
        return frozenset({"choice_logprobs"})

    def others(self) -> frozenset[str]:
        return frozenset({self.teacher})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        student, teacher = out.extra["choice_logprobs"], out.other(self.teacher, "gkd_loss").extra["choice_logprobs"]
        if student.shape[-1] != teacher.shape[-1]:
            raise ValueError(
                f"gkd_loss: the policy has {student.shape[-1]} ids and the teacher {teacher.shape[-1]}; take a teacher "
                "of the same tokenizer"
            )
        return zero_outside(generalised_jsd(student, teacher, self.beta), batch["action_mask"])
