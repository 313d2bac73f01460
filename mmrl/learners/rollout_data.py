"""The iteration: select -> collect -> score -> reshape -> collate -> annotate -> weigh -> learn.

Reinforcement learning here is supervised learning on data that the policy makes, so the loop is a data module: one
Lightning epoch is one iteration, and the training loader collects when it is iterated. The loader is sized, because
Lightning prefetches from loaders without a length and would train on data of older weights.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import lightning as L
import torch

from mmrl.batch import Batch
from mmrl.curricula.base import Curriculum
from mmrl.engines.base import Engine
from mmrl.episodes.base import EpisodeTransform
from mmrl.episodes.filter import grouped
from mmrl.evaluation.held_out import HeldOut
from mmrl.learners import parallel
from mmrl.learners.collate import collate
from mmrl.learners.metrics import episode_metrics
from mmrl.learners.windows import micro_batches
from mmrl.objectives.weighting import Weighting
from mmrl.rewards.base import Reward
from mmrl.rewards.scoring import score
from mmrl.rollouts.base import Rollout
from mmrl.stages.base import Stage
from mmrl.types import Context, Episode, Sampling, Task

log = logging.getLogger(__name__)


class RolloutData(L.LightningDataModule):
    """Makes each iteration's data with the policy that is being trained.

    Args:
        task: problems and their verifier.
        rollout: how prompts become episodes.
        engine: what samples the policy.
        reward: from named scores to one number per episode.
        weighting: how choices share the loss.
        curriculum: which prompts come next.
        sampling: how training actions are drawn.
        stages: named annotators.
        pipeline: their names, in the order in which they run.
        episodes: named transforms between scoring and collation, run in the order given.
        evaluation: what is measured on the held-out split, and how; None for nothing.
        prompts: problems per iteration, over all ranks.
        group_size: attempts per problem (G).
        passes: how often an iteration's rows are learnt from.
        updates: optimiser steps per pass.
        seed: of everything random; the same seed gives the same run.
    """

    trainer: Any  # Lightning gives it before anything is asked of the loaders

    def __init__(
        self,
        task: Task,
        rollout: Rollout,
        engine: Engine,
        reward: Reward,
        weighting: Weighting,
        curriculum: Curriculum,
        sampling: Sampling,
        stages: dict[str, Stage] | None = None,
        pipeline: list[str] | None = None,
        episodes: dict[str, EpisodeTransform] | None = None,
        evaluation: HeldOut | None = None,
        prompts: int = 32,
        group_size: int = 8,
        passes: int = 1,
        updates: int = 1,
        seed: int = 0,
    ):
        super().__init__()
        sizes = {"prompts": prompts, "group_size": group_size, "passes": passes, "updates": updates}
        for name, value in sizes.items():
            if value < 1:
                raise ValueError(f"data.{name} must be at least 1, got {value}")
        self.task, self.rollout, self.engine, self.reward = task, rollout, engine, reward
        self.weighting, self.curriculum, self.sampling = weighting, curriculum, sampling
        stages = stages or {}
        self.pipeline = [(name, stages[name]) for name in (pipeline or [])]
        self.transforms = episodes or {}
        self.evaluation = evaluation
        self.prompts, self.group_size, self.passes, self.updates, self.seed = prompts, group_size, passes, updates, seed
        self.iteration = 0
        self.metrics: dict[str, float] = {}
        self.last_episodes: list[Episode] = []  # of this rank, for callbacks that show them

    # ---------------------------------------------------------------- Lightning's side

    def train_dataloader(self) -> _Loader:
        return _Loader(self._iteration, self.passes * self.updates * self.trainer.accumulate_grad_batches)

    def val_dataloader(self) -> list | _Loader:
        return [] if self.evaluation is None else _Loader(self._measured, 1)

    def teardown(self, stage: str) -> None:
        self.engine.close()

    def on_exception(self, exception: BaseException) -> None:
        self.engine.close()

    def state_dict(self) -> dict[str, Any]:
        return {
            "iteration": self.iteration,
            "curriculum": self.curriculum.state_dict(),
            "rollout": parallel.gathered([self.rollout.state_dict()]),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        rank, size = parallel.rank_and_size()
        if len(state["rollout"]) != size:
            raise ValueError(
                f"the checkpoint holds simulator states of {len(state['rollout'])} processes, this run has {size}; "
                "resume with the same trainer.devices"
            )
        self.iteration = state["iteration"]
        self.curriculum.load_state_dict(state["curriculum"])
        self.rollout.load_state_dict(state["rollout"][rank])

    # ---------------------------------------------------------------- one iteration

    def _iteration(self) -> Iterator[Batch]:
        learner = self.trainer.lightning_module
        self.engine.report()  # an evaluation's share is not this iteration's
        started = time.perf_counter()
        self.engine.sync(learner.policy, self.iteration)
        self.engine.count("seconds/sync", time.perf_counter() - started)
        ctx = self._context(learner)
        with parallel.precision(self.trainer):
            batch = self._annotated(*self._played(ctx), ctx)
        self.engine.rest()
        self.iteration += 1
        yield from micro_batches(
            batch,
            self.weighting,
            passes=self.passes,
            updates=self.updates,
            accumulate=self.trainer.accumulate_grad_batches,
            seed=self.seed,
            iteration=ctx.iteration,
            device=ctx.device,
        )

    def _played(self, ctx: Context) -> tuple[list[Episode], list[Episode]]:
        """This rank's episodes to learn from, and all that the first collection gave."""
        started = time.perf_counter()
        self._next_slot, self._scoring = 0, 0.0
        collected = self._collect(self.prompts, ctx)
        ctx.more = lambda count: self._more(count, ctx)
        episodes = [episode for episode in collected if episode.ended != "error"]
        for transform in self.transforms.values():
            episodes = transform(episodes, ctx)
        self.last_episodes = collected
        self.metrics = episode_metrics(
            parallel.gathered([e.light() for e in collected]),
            kept=sum(parallel.gathered([len(episodes)])),
            rows=sum(parallel.gathered([sum(len(e.turns) for e in episodes)])),
        )
        self.metrics |= getattr(self.rollout, "metrics", dict)()
        self.metrics["seconds/rollout"] = time.perf_counter() - started
        self.metrics["seconds/score"] = self._scoring
        self.metrics |= self.engine.report()
        return episodes, collected

    def _annotated(self, episodes: list[Episode], collected: list[Episode], ctx: Context) -> Batch:
        """The rows with the columns of every stage."""
        started = time.perf_counter()
        batch = self._rows(episodes, collected, ctx.policy)
        for name, stage in self.pipeline:
            batch.require(stage.reads, f"stage {name!r}")
            batch = stage(batch, ctx)
        self.metrics["seconds/stages"] = time.perf_counter() - started
        return batch

    def _context(self, learner: Any) -> Context:
        rank, size = parallel.rank_and_size()
        return Context(
            task=self.task,
            engine=self.engine,
            policy=learner.policy,
            sampling=self.sampling,
            seed=self.seed,
            iteration=self.iteration,
            attempts=self.group_size,
            rank=rank,
            world_size=size,
            device=learner.device,
            models=learner.models,
            progress=self._progress,
            gather=parallel.gathered,
        )

    def _collect(self, count: int, ctx: Context) -> list[Episode]:
        """This rank's share of `count` further prompts: played, scored and rewarded."""
        indices = self.curriculum.select(count, ctx)
        slots = [(self._next_slot + i, index) for i, index in enumerate(indices)]
        self._next_slot += len(indices)
        mine = [(slot, self.task[index]) for slot, index in slots[ctx.rank :: ctx.world_size]]
        episodes = self.rollout.collect(mine, ctx) if mine else []
        started = time.perf_counter()
        score(episodes, self.task, self.reward)
        self._scoring += time.perf_counter() - started
        self.curriculum.observe(list(grouped(parallel.gathered([e.light() for e in episodes])).values()))
        return episodes

    def _more(self, count: int, ctx: Context) -> list[Episode] | None:
        """This rank's share of `count` further prompts, the same number on all ranks; None for none."""
        return self._collect(count, ctx) if count else None

    def _rows(self, episodes: list[Episode], collected: list[Episode], policy: Any) -> Batch:
        """The rows to learn from; when none is left, one that is masked, so that every rank can go on."""
        if any(episode.turns for episode in episodes):
            return collate(episodes, policy)
        spare = next((e for e in collected if e.turns), None)
        if spare is None:
            raise RuntimeError(
                f"iteration {self.iteration}: all {len(collected)} episodes of task {self.task.name!r} ended in an "
                "error before the first decision; see the log above"
            )
        log.warning("iteration %d: no episode is left to learn from", self.iteration)
        batch = collate([spare], policy).select(torch.tensor([0]))
        return batch.with_columns(mask=torch.zeros_like(batch["mask"]))

    def _progress(self, phase: str, done: int, of: int) -> None:
        for callback in self.trainer.callbacks:
            shown = getattr(callback, "on_rollout_progress", None)
            if shown is not None:
                shown(phase, done, of)

    # ---------------------------------------------------------------- held-out numbers

    def measure(self) -> dict[str, float]:
        """The evaluators' numbers for the policy as it is; empty without an evaluation."""
        if self.evaluation is None:
            return {}
        learner = self.trainer.lightning_module
        self.engine.sync(learner.policy, self.iteration)
        with parallel.precision(self.trainer):
            return self.evaluation.measure(self.task, self.reward, self._context(learner))

    def _measured(self) -> Iterator[dict[str, float]]:
        yield self.measure()


class _Loader:
    """A sized iterable whose every pass calls `make` afresh."""

    def __init__(self, make: Any, length: int):
        self._make, self._length = make, length

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator:
        return self._make()
