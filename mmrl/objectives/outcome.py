"""Terms by which another model learns beside the policy, from how its answers ended."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from mmrl.batch import Batch
from mmrl.objectives.objective import Term
from mmrl.ops.process_reward import implicit_reward
from mmrl.types import PolicyOutput


@dataclass(frozen=True)
class OutcomeCrossEntropy(Term):
    """Cross-entropy of sigmoid(scale sum_t q_t) against the outcome, per row; q the log-ratio to the reference.

    Rows are whole answers, rewards lie in [0, 1]. Source: Process Reinforcement through Implicit Rewards, 2025,
    equation 5, arXiv:2502.01456.

    Args:
        model: one of `model.auxiliary_models`.
        scale: logits per nat.
        reference: column of the reference's log-probs.
    """

    model: str = "reward"
    scale: float = 0.05
    reference: str = "ref_logprobs"

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"action_mask", "episode_reward", self.reference})

    @property
    def others(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({self.model})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        outcome = batch["episode_reward"].clamp(0, 1)
        return F.binary_cross_entropy_with_logits(self._logit(out, batch), outcome, reduction="none")

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """accuracy: of the outcome that is more likely by the model."""
        return {"accuracy": ((self._logit(out, batch) > 0) == (batch["episode_reward"] > 0.5)).float()}

    def _logit(self, out: PolicyOutput, batch: Batch) -> Tensor:
        logprobs = out.other(self.model, "outcome_cross_entropy").logprobs
        return self.scale * implicit_reward(logprobs, batch[self.reference], batch["action_mask"]).sum(1)
