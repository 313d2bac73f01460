"""Build the Context of an iteration, with the values that scheduled scalars have in it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mmrl import parallel
from mmrl.data.collector import ProgressCallback
from mmrl.engines.named_models import list_models
from mmrl.errors import ConfigError
from mmrl.rewards.scoring import Scorer
from mmrl.types import Context

if TYPE_CHECKING:
    from mmrl.data.rollout_data import RolloutData
    from mmrl.learners.base import BaseLearner
    from mmrl.policies.base import Policy


def build_context(data: RolloutData, learner: BaseLearner) -> Context:
    """Build the context of the data module's present iteration."""
    rank, size = parallel.rank_and_size()
    watchers = [callback for callback in data.trainer.callbacks if isinstance(callback, ProgressCallback)]

    def progress(phase: str, done: int, total: int) -> None:
        for callback in watchers:
            callback.on_rollout_progress(phase, done, total)

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
        collector=Scorer(data.task, data.reward, getattr(learner.policy, "opened_tag", "")),
    )
    return at_iteration(data, ctx, data.iteration)


def at_iteration(data: RolloutData, ctx: Context, iteration: int) -> Context:
    """Return the context of another iteration, with the values that scheduled scalars have there."""
    values = data.scheduled.values(iteration)
    return replace(ctx, iteration=iteration, scheduled=values, **data.scheduled.context_fields(values))


def find_models(data: RolloutData) -> dict[str, Policy]:
    """Return the frozen models that the rollouts and transforms of a data module sample from, by name.

    Raises:
        ConfigError: the learner has no such model, or trains it.
    """
    held_out = [] if data.evaluation is None else [data.evaluation.rollout, *data.evaluation.transforms.values()]
    names = sorted(list_models([data.rollout, *data.transforms.values(), *held_out]))
    learner = data.trainer.lightning_module
    frozen: frozenset[str] = getattr(learner, "frozen_models", frozenset())
    if missing := [name for name in names if name not in frozen]:
        raise ConfigError(
            f"a part of data samples from {missing}, and model.frozen_models has {sorted(frozen)}; name it there, as "
            f"in +model.frozen_models.{missing[0]}={{_target_: mmrl.policies.text.policy.TextPolicy, path: FOLDER}}"
        )
    return {name: learner.models[name] for name in names}


def sync_engine(data: RolloutData, policy: Policy, version: int) -> list[Policy]:
    """Give the engine the policy's weights and, once, those of frozen models; return all models that it samples."""
    frozen = find_models(data)
    data.engine.load_models(frozen)
    data.engine.sync(policy, version)
    return [policy, *frozen.values()]
