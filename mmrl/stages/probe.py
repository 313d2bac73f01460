"""What the tokens put after answers say before the update, and what they count."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mmrl.batch import Batch
from mmrl.ops.probe import balanced_weights, probe_score
from mmrl.stages.base import Annotator
from mmrl.types import Context


@dataclass(frozen=True)
class ProbeScore(Annotator):
    """What each answer earned by the policy's own account, and weights with which right and wrong ones count the same.

    Args:
        scale: rewards per nat.
        reference: log-probability of the token in the reference, the same everywhere, in nats; none takes it from
            `ref_logprobs`.
    """

    scale: float = 0.1
    reference: float | None = None

    writes = frozenset({"probe_score", "probe_weight"})

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        known = {"probe", "old_logprobs", "episode_reward"}
        return frozenset(known if self.reference is not None else known | {"ref_logprobs"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        batch.require(self.reads, "annotator probe_score")
        probe, right = batch["probe"], _right(batch["episode_reward"], batch["probe"])
        reference = batch["ref_logprobs"] if self.reference is None else self.reference
        counted = probe.any(1)
        mine = (int((right & counted).sum()), int((~right & counted).sum()))
        ones, zeros = map(sum, zip(*ctx.gather([mine])))
        return batch.with_columns(
            probe_score=probe_score(batch["old_logprobs"], reference, probe, self.scale),
            probe_weight=balanced_weights(right, counted, ones, zeros),
        )

    def metrics(self, batch: Batch, ctx: Context) -> dict[str, float]:
        """Mean score of right and of wrong answers, on the rows that are learnt from."""
        counted = batch["probe"].any(1)
        right = _right(batch["episode_reward"], batch["probe"])
        parts = ctx.gather([[batch["probe_score"][counted & of].double() for of in (right, ~right)]])
        sums = [(sum(float(part[k].sum()) for part in parts), sum(len(part[k]) for part in parts)) for k in (0, 1)]
        return {name: total / count for name, (total, count) in zip(("right", "wrong"), sums) if count}


def _right(reward: Tensor, probe: Tensor) -> Tensor:
    odd = probe.any(1) & (reward != 0) & (reward != 1)
    if odd.any():
        raise ValueError(
            f"annotator probe_score: answers are right or wrong, but one earned {float(reward[odd][0])}; "
            "let data.reward be 0 or 1"
        )
    return reward == 1
