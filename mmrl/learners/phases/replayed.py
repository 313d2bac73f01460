"""Forward passes on the recorded actions and states of a batch, for methods that ask for no action of the policy."""

from __future__ import annotations

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.learners.phases.base import UpdateContext
from mmrl.learners.phases.forward_pass import Output


class ReplayLogprobs(Output):
    """Log-probs of the replay buffer's actions under the policy [N, 1], at temperature 1.

    Args:
        actor: name of the policy.
    """

    def __init__(self, actor: str = "policy"):
        self.actor = actor

    def models(self) -> frozenset[str]:
        return frozenset({self.actor})

    def __call__(self, batch: Batch, ctx: UpdateContext) -> PolicyOutput:
        temperature = batch["reward"].new_ones(len(batch["reward"]))
        return ctx.models[self.actor](batch.with_columns(temperature=temperature))
