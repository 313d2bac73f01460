"""Off-policy iterations: collect transitions, store them in a replay buffer, and sample batches from it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context
from mmrl.data.collate import collate
from mmrl.data.collector import Collected, build_context, notify_rollout_end
from mmrl.data.loader import IterationLoader
from mmrl.data.replay_buffer import ReplayBuffer
from mmrl.data.rollout_data import RolloutData
from mmrl.data.shared_replay_buffer import SharedReplayBuffer
from mmrl.distributed import parallel
from mmrl.policies.base import Policy
from mmrl.policies.control.uniform import UniformPolicy
from mmrl.schedules.scheduled import refuse_learning


class ReplayData(RolloutData):
    """Collect transitions with the current policy, then sample `gradient_steps` batches from the replay buffer.

    A training step takes the batches of several gradient steps, columns [gradient steps, rows, ...].

    The update-to-data ratio is `gradient_steps` over the decisions of an iteration. Several processes make the run of
    one: each stores the transitions of its own environments (`SharedReplayBuffer`) and learns from those of its rows
    that a batch has.

    Args:
        replay: the replay buffer.
        gradient_steps: per iteration.
        learning_starts: number of first decisions that are drawn uniformly from the action box; training starts after
            them.
        updates_per_step: gradient steps in one training step of Lightning, whose bookkeeping takes longer than the
            update of a small network.
    """

    def __init__(
        self,
        replay: ReplayBuffer,
        gradient_steps: int = 1,
        learning_starts: int = 100,
        updates_per_step: int = 64,
        **kwargs: Any,
    ):
        # what is fixed here is no argument of this class
        super().__init__(
            annotators=None,
            pipeline=None,
            parity=None,
            rows=None,
            update_epochs=1,
            num_minibatches=1,
            max_empty_iterations=5,
            **kwargs,
        )
        refuse_learning(self.scheduled)
        self.replay, self.gradient_steps = replay, gradient_steps
        self.learning_starts, self.updates_per_step = learning_starts, updates_per_step
        check_at_least(1, "data", gradient_steps=self.gradient_steps)
        check_at_least(1, "data", learning_starts=self.learning_starts, updates_per_step=self.updates_per_step)

    def setup(self, stage: str) -> None:
        super().setup(stage)
        if parallel.rank_and_size()[1] > 1 and not isinstance(self.replay, SharedReplayBuffer):
            self.replay = SharedReplayBuffer(self.replay, parallel.device_of(self.trainer))

    def train_dataloader(self) -> IterationLoader:
        return IterationLoader(self._iteration, math.ceil(self.gradient_steps / self.updates_per_step))

    def _collection_state(self) -> dict[str, Any]:
        return {**super()._collection_state(), "replay": [self.replay.state_dict()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.replay.load_state_dict(state["replay"][0])

    def _iteration(self) -> Iterator[Batch]:  # type: ignore[override]
        module = self.trainer.lightning_module
        module.policy.include_rows()
        ctx = build_context(self, module)
        learner = ctx.policy
        if self.replay.num_transitions < self.learning_starts:
            ctx = replace(ctx, policy=UniformPolicy(learner))
        collected = self._next_collection(ctx)
        self.last_episodes, self.metrics = collected.sampled, dict(collected.metrics)
        learner.count_rows(self._store(collected, learner), partial(parallel.total, device=ctx.device))
        notify_rollout_end(self.trainer, collected, Batch(), ctx)
        self._finish_collection(ctx)
        self.metrics |= self.replay.metrics()
        module.report(self.metrics)
        self.iteration += 1
        ready = self.replay.num_transitions >= self.learning_starts
        rng = derive_rng(self.seed, "replay", ctx.iteration, 0)  # equal in all processes
        for start in range(0, self.gradient_steps, self.updates_per_step):
            count = min(self.updates_per_step, self.gradient_steps - start)
            yield self._with_weights(self.replay.sample(count, rng), ctx) if ready else Batch()

    def _store(self, collected: Collected, policy: Policy) -> Batch:
        """Store the transitions of a collection in the replay buffer; returns their rows."""
        episodes = [episode for episode in collected.episodes if episode.turns]
        followed = [(i, episode.following) for i, episode in enumerate(episodes) if episode.following is not None]
        following = Batch(episode=torch.tensor([i for i, _ in followed], dtype=torch.long))
        if followed:
            inputs = policy.collate([observation for _, observation in followed])
            following = following.with_columns(**{f"obs.{name}": column for name, column in inputs.items()})
        rows = collate(episodes, policy) if episodes else Batch()
        self.replay.add(rows, following)
        return rows

    def _with_weights(self, batches: Batch, ctx: Context) -> Batch:
        """Compute the loss weights of each gradient step; gradients are averaged over the processes."""
        steps = [Batch({name: column[i] for name, column in batches.items()}) for i in range(batches.rows)]
        if ctx.world_size == 1:
            weights = [self.weighting(step, parallel.total) for step in steps]
            return batches.with_columns(loss_weights=torch.stack(weights))
        terms: list[Tensor] = []  # what the weighting sums over the processes; summed for all steps at once

        def note(value: Tensor) -> Tensor:
            terms.append(value)
            return value

        for step in steps:
            self.weighting(step, note)
        totals = iter(parallel.total(torch.stack(terms), ctx.device))
        weights = [self.weighting(step, lambda value: next(totals)) for step in steps]
        return batches.with_columns(loss_weights=torch.stack(weights) * ctx.world_size)
