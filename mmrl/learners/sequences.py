"""SequenceLearner: minibatches of whole sequences, for policies with a memory."""

from __future__ import annotations

from mmrl.learners.learner import Learner


class SequenceLearner(Learner):
    """Learn as `Learner` does, with all decisions of a segment of an episode in one minibatch, in their order.

    So a policy with a memory is unrolled over the segment as it was played, and its gradient goes through time. A
    policy without a memory learns from the same minibatches.
    """

    whole_groups = True  # a segment is a group of its own

    def setup(self, stage: str) -> None:
        super().setup(stage)
        self.policy.whole_sequences = True  # type: ignore[assignment]
