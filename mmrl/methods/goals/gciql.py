"""Goal-conditioned IQL: IQL on recorded transitions with hindsight goals.

Implicit Q-Learning, 2021, arXiv:2110.06169, as OGBench: Benchmarking Offline Goal-Conditioned RL, 2024,
arXiv:2410.20092, conditions it on goals; the order of an update is in conf/phases/gciql.yaml.

- goals, rewards and discounts of a minibatch: `mmrl.data.offline.hindsight.HindsightReplayBuffer`
- value, critics and weights of actions: `mmrl.methods.control.iql`, on features of a state and a goal
- the actor's goals, which are later states of the same episode: `ActorGoals`
"""

from __future__ import annotations

from mmrl.core.batch import Batch
from mmrl.learners.phases.base import Phase, UpdateContext


class ActorGoals(Phase):
    """The goals of the phases that follow are the actor's: `actor_goal` in place of obs.goal and next.goal."""

    def reads(self) -> frozenset[str]:
        return frozenset({"actor_goal"})

    def writes(self) -> frozenset[str]:
        return frozenset({"obs.goal", "next.goal"})

    def models(self) -> frozenset[str]:
        return frozenset()

    def __call__(self, batch: Batch, ctx: UpdateContext) -> Batch:
        return batch.with_columns(**{"obs.goal": batch["actor_goal"], "next.goal": batch["actor_goal"]})
