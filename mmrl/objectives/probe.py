"""Terms about the token that was put after an answer."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mmrl.batch import Batch
from mmrl.objectives.objective import Term
from mmrl.ops.probe import probe_score
from mmrl.types import PolicyOutput


@dataclass(frozen=True)
class ProbeError(Term):
    """Squared error of what the probe says the answer earned, per row: w (s - r)^2, s = scale (logprob - reference).

    Args:
        scale: rewards per nat.
        reference: log-probability of the token in the reference, the same everywhere, in nats; none takes it from
            `ref_logprobs`.
    """

    scale: float = 0.1
    reference: float | None = None

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        known = {"probe", "probe_weight", "episode_reward"}
        return frozenset(known if self.reference is not None else known | {"ref_logprobs"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        reference = batch["ref_logprobs"] if self.reference is None else self.reference
        score = probe_score(out.logprobs, reference, batch["probe"], self.scale)
        return batch["probe_weight"] * (score - batch["episode_reward"]).square()
