"""Off-policy data: collect transitions, store them in a replay buffer, and sample batches from it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from mmrl import parallel
from mmrl.batch import Batch
from mmrl.curricula.base import Curriculum
from mmrl.engines.base import Engine
from mmrl.episodes.base import EpisodeTransform
from mmrl.evaluation.held_out import HeldOut
from mmrl.learners.collate import collate
from mmrl.learners.loader import IterationLoader
from mmrl.learners.playing import Collected
from mmrl.learners.rollout_data import RolloutData
from mmrl.objectives.weighting import Weighting
from mmrl.policies.base import Policy
from mmrl.policies.uniform import Uniform
from mmrl.replay.replay import Replay
from mmrl.rewards.base import Reward
from mmrl.rng import derive_rng
from mmrl.rollouts.base import Rollout
from mmrl.types import Context, Sampling, Task


class ReplayData(RolloutData):
    """Each iteration plays with the policy as it is, then gives `updates` batches of all that is kept.

    A step of the trainer takes the batches of several updates, columns [updates, rows, ...].

    Updates per decision (the update-to-data ratio) are `updates` over the decisions of an iteration. The buffer is that
    of one process.

    Args:
        task: problems and their verifier.
        rollout: how prompts become decisions; what does not terminate has to say what followed.
        engine: what samples the policy.
        reward: from named scores to one number per episode, paid at its last decision.
        weighting: how the rows of a batch share the loss.
        curriculum: which prompts come next.
        sampling: how training actions are drawn.
        replay: what is kept, and how it is drawn.
        episodes: named transforms between scoring and collation, run in the order given.
        evaluation: what is measured on the held-out split, and how; None for nothing.
        prompts: problems per iteration, over all ranks.
        group_size: attempts per problem.
        updates: per iteration.
        random: the first so many decisions of each process are uniform in the box of actions, and nothing is learnt
            before they are made.
        at_once: updates in one step of the trainer, so that small networks do not wait for its bookkeeping.
        seed: of everything random; the same seed gives the same run.
    """

    several_processes = False

    def __init__(
        self,
        task: Task,
        rollout: Rollout,
        engine: Engine,
        reward: Reward,
        weighting: Weighting,
        curriculum: Curriculum,
        sampling: Sampling,
        replay: Replay,
        episodes: dict[str, EpisodeTransform] | None = None,
        evaluation: HeldOut | None = None,
        prompts: int = 1,
        group_size: int = 1,
        updates: int = 1,
        random: int = 100,
        at_once: int = 64,
        seed: int = 0,
    ):
        super().__init__(
            task,
            rollout,
            engine,
            reward,
            weighting,
            curriculum,
            sampling,
            episodes=episodes,
            evaluation=evaluation,
            prompts=prompts,
            group_size=group_size,
            updates=updates,
            seed=seed,
        )
        if random < 1 or at_once < 1:
            raise ValueError(f"data.random and data.at_once must be at least 1, got {random} and {at_once}")
        self.replay, self.random, self.at_once = replay, random, at_once

    def train_dataloader(self) -> IterationLoader:
        return IterationLoader(self._iteration, math.ceil(self.updates / self.at_once))

    def _collection_state(self) -> dict[str, Any]:
        return {**super()._collection_state(), "replay": parallel.gather([self.replay.state_dict()])}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.replay.load_state_dict(state["replay"][parallel.rank_and_size()[0]])

    def _iteration(self) -> Iterator[Batch]:  # type: ignore[override]
        ctx = self._context(self.trainer.lightning_module)
        learner = ctx.policy
        if self.replay.decisions < self.random:
            ctx.policy = Uniform(learner)
        collected = self._next_collection(ctx)
        self.last_episodes, self.metrics = collected.sampled, dict(collected.metrics)
        self._keep(collected, learner)
        self._finish_collection(ctx)
        self.metrics |= self.replay.metrics()
        self.iteration += 1
        ready = all(parallel.gather([self.replay.decisions >= self.random]))
        rng = derive_rng(self.seed, "replay", ctx.iteration, ctx.rank)
        for start in range(0, self.updates, self.at_once):
            count = min(self.at_once, self.updates - start)
            yield self._with_weights(self.replay.draw(count, rng), ctx) if ready else Batch()

    def _keep(self, collected: Collected, policy: Policy) -> None:
        episodes = [episode for episode in collected.episodes if episode.turns]
        if not episodes:
            return
        followed = [(i, episode.following) for i, episode in enumerate(episodes) if episode.following is not None]
        following = Batch(episode=torch.tensor([i for i, _ in followed], dtype=torch.long))
        if followed:
            seen = policy.collate([observation for _, observation in followed])
            following = following.with_columns(**{f"obs.{name}": column for name, column in seen.items()})
        self.replay.add(collate(episodes, policy), following)

    def _with_weights(self, windows: Batch, ctx: Context) -> Batch:
        """Each update's own weights; DDP averages over the ranks."""
        updates = [Batch({name: column[i] for name, column in windows.items()}) for i in range(windows.rows)]
        weights = [self.weighting(batch, lambda value: parallel.total(value, ctx.device)) for batch in updates]
        return windows.with_columns(weights=torch.stack(weights) * ctx.world_size)
