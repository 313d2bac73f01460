"""Build the Context of an iteration, with the values that scheduled scalars have in it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mmrl import parallel
from mmrl.data.collector import ProgressCallback
from mmrl.rewards.scoring import Scorer
from mmrl.types import Context

if TYPE_CHECKING:
    from mmrl.data.rollout_data import RolloutData
    from mmrl.learners.base import BaseLearner


def build_context(data: RolloutData, learner: BaseLearner) -> Context:
    """Build the context of the data module's present iteration."""
    rank, size = parallel.rank_and_size()
    watchers = [callback for callback in data.trainer.callbacks if isinstance(callback, ProgressCallback)]

    def progress(phase: str, done: int, of: int) -> None:
        for callback in watchers:
            callback.on_rollout_progress(phase, done, of)

    ctx = Context(
        task=data.task,
        engine=data.engine,
        policy=learner.policy,
        sampling=data.sampling,
        seed=data.seed,
        iteration=data.iteration,
        group_size=data.group_size,
        num_prompts=data.num_prompts,
        rank=rank,
        world_size=size,
        device=learner.device,
        models=learner.models,  # type: ignore[arg-type]  # of policies, where annotators ask for one
        progress=progress,
        collector=Scorer(data.task, data.reward),
    )
    return at_iteration(data, ctx, data.iteration)


def at_iteration(data: RolloutData, ctx: Context, iteration: int) -> Context:
    """Return the context of another iteration, with the values that scheduled scalars have there."""
    values = data.scheduled.values(iteration)
    return replace(ctx, iteration=iteration, scheduled=values, **data.scheduled.context_fields(values))
