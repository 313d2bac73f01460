"""The iteration: select -> collect -> score -> reshape -> collate -> annotate -> choose rows -> weigh -> learn.

Reinforcement learning here is supervised learning on data that the policy makes, so the loop is a data module: one
Lightning epoch is one iteration, and the training loader collects when it is iterated. The loader is sized, because
Lightning prefetches from loaders without a length and would train on data of older weights.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import lightning as L

from mmrl.annotators.base import Annotator
from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least
from mmrl.core.evaluation_mode import evaluation_mode, no_learning
from mmrl.core.types import Context, Episode, Sampling, Task
from mmrl.curricula.base import Curriculum
from mmrl.data.checks.empty_iterations import EmptyIterations, find_extract_key
from mmrl.data.checks.finite import check_columns
from mmrl.data.checks.prompt_lengths import check_prompt_lengths, drop_long_prompts
from mmrl.data.collate import apply_rows, learnable
from mmrl.data.collector import Collected, PromptCollector, build_context, find_models, notify_rollout_end, sync_engine
from mmrl.data.loader import IterationLoader
from mmrl.data.minibatches import UpdateEpoch, split_update_epochs
from mmrl.data.parity import Parity, measure_staleness
from mmrl.data.states import collect_states, copy_stateful, load_rollout, load_states
from mmrl.distributed import parallel
from mmrl.distributed.sequence_group import share_scoring
from mmrl.distributed.sharding import gather_weights
from mmrl.engines.base import Engine
from mmrl.evaluation.held_out import HeldOut
from mmrl.objectives.weighting import Weighting
from mmrl.rewards.base import Reward
from mmrl.rollouts.base import Rollout
from mmrl.runs.early_end import ends_early
from mmrl.schedules.base import Schedule
from mmrl.schedules.scheduled import ScheduledScalars
from mmrl.transforms.base import EpisodeTransform, check_group_size
from mmrl.transforms.rows.base import RowTransform
from mmrl.transforms.rows.shared_rows import SharedRows

if TYPE_CHECKING:
    from mmrl.learners.base import BaseLearner


class RolloutData(L.LightningDataModule):
    """Data module that collects each iteration's data with the policy in training.

    Args:
        task: problems and their verifier.
        rollout: how prompts become episodes.
        engine: what samples the policy.
        reward: from named scores to one number per episode.
        weighting: how choices share the loss.
        curriculum: which prompts come next.
        sampling: how training actions are drawn.
        annotators: named annotators.
        pipeline: their names, in the order in which they run.
        transforms: applied to the episodes between scoring and collation, by name, run in the order given.
        rows: applied to the annotated rows before they are weighted, by name, run in the order given.
        evaluation: what is measured on the held-out split, and how; None for nothing.
        parity: compares the engine's log-probs with the learner's; None to trust the engine.
        num_prompts: problems per iteration, over all ranks.
        group_size: episodes per problem (G).
        update_epochs: passes over an iteration's rows.
        num_minibatches: minibatches per update epoch, one optimiser step each.
        max_empty_iterations: in a row, after which the run stops and says why nothing is left to learn from.
        schedules: of scalars that change over the iterations, by key; `mmrl.schedules.extraction` moves them here.
        seed: of everything random; the same seed gives the same run.
    """

    trainer: Any  # set by Lightning before it asks for loaders
    staleness = 0  # maximum age of sampling weights, in versions

    def __init__(
        self,
        task: Task,
        rollout: Rollout,
        engine: Engine,
        reward: Reward,
        weighting: Weighting,
        curriculum: Curriculum,
        sampling: Sampling,
        annotators: dict[str, Annotator] | None = None,
        pipeline: list[str] | None = None,
        transforms: dict[str, EpisodeTransform] | None = None,
        rows: dict[str, RowTransform] | None = None,
        evaluation: HeldOut | None = None,
        parity: Parity | None = None,
        num_prompts: int = 32,
        group_size: int = 8,
        update_epochs: int = 1,
        num_minibatches: int = 1,
        max_empty_iterations: int = 5,
        schedules: dict[str, Schedule] | None = None,
        seed: int = 0,
    ):
        super().__init__()
        self.num_prompts, self.group_size, self.seed = num_prompts, group_size, seed
        self.update_epochs, self.num_minibatches = update_epochs, num_minibatches
        self.task, self.rollout, self.engine, self.reward = task, rollout, engine, reward
        self.weighting, self.curriculum, self.sampling = weighting, curriculum, sampling
        self.annotators = {name: (annotators or {})[name] for name in pipeline or []}  # those that run, in order
        self.transforms, self.rows = transforms or {}, rows or {}
        self._spare_transforms = copy_stateful(self.transforms)  # for rows that are not trained on
        self.check_sizes()
        self.scheduled = ScheduledScalars(schedules or {})
        self.evaluation, self.parity = evaluation, parity
        self.iteration = 0
        self.empty = EmptyIterations(max_empty_iterations, find_extract_key(task, rollout))
        self.finished = False  # every problem is solved, so that the run ends with this iteration
        self._measured = -1  # iteration of the last evaluation on all held-out problems
        self.metrics: dict[str, float] = {}
        self.last_episodes: list[Episode] = []  # this rank's episodes, for callbacks

    def check_sizes(self) -> None:
        """Refuse sizes below 1, and groups that a transform would drop."""
        check_at_least(1, "data", num_prompts=self.num_prompts, group_size=self.group_size)
        check_at_least(1, "data", update_epochs=self.update_epochs, num_minibatches=self.num_minibatches)
        check_group_size(self.transforms, self.group_size)

    # ---------------------------------------------------------------- Lightning's side

    def setup(self, stage: str) -> None:
        """Read all problems, and check that they fit into the policy's context and have what the reward reads."""
        policy = self.trainer.lightning_module.policy
        observe = partial(self.rollout.build_observation, policy=policy)
        self.engine.check_models(find_models(self))
        self.task = drop_long_prompts(self.task, policy, observe)
        for part in (self.rollout, self.reward):
            part.check_task(self.task)
        if stage == "fit":
            self.scheduled.bind(self, self.trainer.lightning_module, self.trainer.max_epochs)
            longest = max(self.scheduled.all_values("data.sampling.max_tokens"), default=self.sampling.max_tokens)
            check_prompt_lengths(self.task, policy, int(longest), observe, imitated=not self.rollout.samples)
        if self.evaluation is not None:
            longest = max(sampling.max_tokens for sampling in self.evaluation.sampling.values())
            observe = partial(self.evaluation.rollout.build_observation, policy=policy)
            self.reward.check_task(problems := self.evaluation.select_problems(self.task))
            check_prompt_lengths(problems, policy, longest, observe)

    def train_dataloader(self) -> IterationLoader:
        if self.trainer.lightning_module.takes_update_epochs:
            return IterationLoader(self._update_epochs, self.update_epochs)
        return IterationLoader(
            self._iteration, self.update_epochs * self.num_minibatches * self.trainer.accumulate_grad_batches
        )

    def val_dataloader(self) -> list | IterationLoader:
        return [] if self.evaluation is None else IterationLoader(self._measure, 1)

    def teardown(self, stage: str) -> None:
        self.close()
        for rollout in (self.rollout, *([] if self.evaluation is None else [self.evaluation.rollout])):
            rollout.close()

    def on_exception(self, exception: BaseException) -> None:
        self.teardown("fit")

    def close(self) -> None:
        """Release the resources of sampling; may be called twice."""
        self.engine.close()

    def state_dict(self) -> dict[str, Any]:
        annotators = {name: annotator.state_dict() for name, annotator in self.annotators.items()}
        start = {} if self.evaluation is None else self.evaluation.state_dict()
        base = {"iteration": self.iteration, "empty": self.empty.state_dict(), "schedules": self.scheduled.state_dict()}
        rows = {name: part.state_dict() for name, part in self.rows.items()}
        return {**base, "annotators": annotators, "rows": rows, "start": start, **self._collection_state()}

    def _collection_state(self) -> dict[str, Any]:
        """State that collections change: curriculum, rollout and transforms."""
        return {
            "curriculum": self.curriculum.state_dict(),
            "rollout": parallel.gather([self.rollout.state_dict()]),
            "transforms": collect_states(self.transforms),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.iteration = state["iteration"]
        self.empty.load_state_dict(state.get("empty", {}))
        self.scheduled.load_state_dict(state.get("schedules", {}))
        for name, annotator in self.annotators.items():
            annotator.load_state_dict(state.get("annotators", {}).get(name, {}))
        if self.evaluation is not None:
            self.evaluation.load_state_dict(state.get("start", {}))
        self.curriculum.load_state_dict(state["curriculum"])
        load_states(self.transforms, state.get("transforms", {}))
        load_rollout(self.rollout, state["rollout"])
        for name, part in self.rows.items():
            part.load_state_dict(state.get("rows", {}).get(name, {}))

    # ---------------------------------------------------------------- one iteration
    def _iteration(self) -> Iterator[Batch]:
        for epoch in self._update_epochs():
            yield from epoch

    def _update_epochs(self) -> Iterator[UpdateEpoch]:
        learner: BaseLearner = self.trainer.lightning_module
        learner.policy.include_rows()
        collected = self._next_collection(ctx := build_context(self, learner))
        self.last_episodes, self.metrics = collected.sampled, dict(collected.metrics)
        with parallel.precision(self.trainer), gather_weights(ctx.policy):
            batch = self._rows(collected, ctx)  # this rank's rows, one per turn
            learner.policy.count_rows(batch, partial(parallel.total, device=ctx.device))
            self._finish_collection(ctx)
            with share_scoring(parallel.sequence_group(self.trainer)):
                batch = self._annotate(batch, ctx)  # more columns, such as advantages
        notify_rollout_end(self.trainer, collected, batch, ctx)
        batch, metrics = apply_rows(self.rows, batch, ctx, self.staleness + self.rollout.max_age(ctx.sampling))
        self.metrics |= metrics
        learner.report(self.metrics)
        trained = int(metrics.get("rows/trained", self.metrics["rollout/rows"]))
        if collected.sampled_everywhere and self.empty.observe(collected.sampled_everywhere, trained, ctx.iteration):
            self.finished = self.trainer.should_stop = True
        self.iteration += 1
        yield from split_update_epochs(
            batch,  # micro-batches of this rank; the cut is that of the rows of all ranks
            self.weighting,
            update_epochs=self.update_epochs,
            num_minibatches=self.num_minibatches,
            accumulate=self.trainer.accumulate_grad_batches,
            seed=self.seed,
            iteration=ctx.iteration,
            device=ctx.device,
            whole_groups=learner.whole_groups,
            shared=SharedRows(parallel.sequence_group(self.trainer), learner.policy),
        )

    def _next_collection(self, ctx: Context) -> Collected:
        """Return the collection of this iteration; the engine's memory is free before the weights are gathered."""
        collected = self._collect(ctx, self.iteration)
        self.engine.release_memory()
        return collected

    def _finish_collection(self, ctx: Context) -> None:
        """Start what runs beside the learn step, when the rows of an iteration are complete."""

    def _collect(self, ctx: Context, version: int) -> Collected:
        """Collect with ctx.policy, whose weights have version `version`."""
        with parallel.precision(self.trainer):
            self.engine.reset_report()  # of the evaluation before this iteration
            started = time.perf_counter()
            models = sync_engine(self, ctx.policy, version)
            took = {"time/sync": (synced := time.perf_counter()) - started}
            took |= self.scheduled.update_collection(ctx.scheduled)
            ctx = replace(ctx, task=self.task)
            collector = PromptCollector(self.task, self.rollout, self.reward, self.curriculum, ctx)
            sampling = models if self.rollout.samples and self.engine.uses_policy else []
            # switched and gathered once, not in every decision
            with evaluation_mode(ctx.policy), gather_weights(*sampling):
                sampled = collector.collect_prompts(ctx.num_prompts)
                episodes = [episode for episode in sampled if episode.ended != "error"]
                for transform in self.transforms.values():
                    episodes = transform(episodes, collector.ctx)
        sampled_everywhere = parallel.gather([e.light() for e in sampled])
        metrics = collector.metrics(sampled_everywhere, episodes, time.perf_counter() - synced)
        metrics, spare = self.engine.report() | metrics | took, self.rollout.spare_episodes()
        return Collected(episodes, sampled, sampled_everywhere, metrics, ctx.policy, spare)

    def _annotate(self, batch: Batch, ctx: Context) -> Batch:
        """Apply the annotators of the pipeline in order."""
        started = time.perf_counter()
        self.metrics |= self.scheduled.update_learning(ctx.scheduled)
        for name, annotator in self.annotators.items():
            batch.require(annotator.reads(), f"annotator {name!r}")
            with gather_weights(*(ctx.models[model] for model in annotator.models() if model in ctx.models)):
                batch = annotator(batch, ctx)
            check_columns(batch, annotator.writes(), f"annotator {name!r}", self.trainer)
            self.metrics |= {f"{name}/{key}": value for key, value in annotator.metrics(batch, ctx).items()}
        self.metrics["time/annotators"] = time.perf_counter() - started
        return batch

    def _rows(self, collected: Collected, ctx: Context) -> Batch:
        """Collate the rows to learn from, and check their staleness and parity."""
        started = time.perf_counter()
        sampled = collected.sampled or collected.spare
        batch = learnable(collected.episodes, sampled, ctx, self._spare_transforms)
        check_columns(batch, ("behavior_logprobs", "values", "reward", "bootstrap_value"), "the rollout", self.trainer)
        self.metrics |= measure_staleness(batch, ctx, self.staleness + self.rollout.max_age(ctx.sampling))
        if self.parity is not None:
            self.metrics |= self.parity(batch, collected.policy, ctx)
        self.metrics["time/collate"] = time.perf_counter() - started
        return batch

    # ---------------------------------------------------------------- held-out numbers

    def measure(self) -> dict[str, float]:
        """Evaluate the current policy; an empty dict without an evaluation."""
        if self.evaluation is None:
            return {}
        learner: BaseLearner = self.trainer.lightning_module
        self.scheduled.restore()
        models = sync_engine(self, learner.policy, self.iteration)
        with parallel.precision(self.trainer), gather_weights(*models), no_learning(learner.policy):
            ends = self.finished or ends_early(self.trainer)
            interim = 0 < self.iteration < self.trainer.max_epochs and not ends
            metrics = self.evaluation.measure(self.task, self.reward, build_context(self, learner), interim)
        if not interim or self.evaluation.interim_count is None:
            self._measured = self.iteration
        return metrics

    @property
    def is_measured(self) -> bool:
        """Whether the weights of this iteration are measured on all held-out problems, or none are to be measured."""
        return self.evaluation is None or self._measured == self.iteration

    def _measure(self) -> Iterator[dict[str, float]]:
        yield self.measure()
