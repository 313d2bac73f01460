"""Collection of an iteration: select prompts, collect and score their episodes, and tell callbacks about it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from mmrl.core.batch import Batch
from mmrl.core.errors import ConfigError
from mmrl.core.groups import group_episodes
from mmrl.core.types import Context, Episode, Prompt, Task
from mmrl.curricula.base import Curriculum
from mmrl.distributed import parallel
from mmrl.engines.base import list_models
from mmrl.policies.base import Policy
from mmrl.rewards.base import Reward
from mmrl.rewards.scoring import Scorer
from mmrl.rollouts.base import ContinuingRollout, Rollout

if TYPE_CHECKING:
    from mmrl.data.rollout_data import RolloutData
    from mmrl.learners.base import BaseLearner


@dataclass(frozen=True)
class Collected:
    """The result of one collection on this rank."""

    episodes: list[Episode]  # episodes to learn from
    sampled: list[Episode]  # the episodes of the first prompts, before further sampling and transforms
    sampled_everywhere: list[Episode]  # `sampled` of all ranks, without tensors
    metrics: dict[str, float]
    policy: Policy  # policy with the sampling weights
    spare: Sequence[Episode] = ()  # one for a masked row, where no episode has ended


class PromptCollector(Scorer):
    """Selects prompts, runs the rollout, scores the episodes and measures the time on this rank.

    Args:
        task: problems and their verifier.
        rollout: how prompts become episodes.
        reward: from named scores to one number per episode.
        curriculum: which prompts come next.
        ctx: of the iteration. `self.ctx` is the same with this collector in it.
    """

    def __init__(self, task: Task, rollout: Rollout, reward: Reward, curriculum: Curriculum, ctx: Context):
        super().__init__(task, reward.at(ctx.iteration).bind(ctx), getattr(ctx.policy, "opened_tag", ""))
        self.rollout, self.curriculum, self.ctx = rollout, curriculum, replace(ctx, collector=self)
        self.choices, self.episodes, self.scoring = 0, 0, 0.0  # sampled choices, episodes, seconds of scoring
        self._next_slot = 0
        self._slots: dict[int, Prompt] = {}  # prompts of this rank by slot

    def collect_prompts(self, count: int) -> list[Episode]:
        indices = self.curriculum.select(count, self.ctx)
        slots = [(self._next_slot + i, index) for i, index in enumerate(indices)]
        self._next_slot += len(indices)
        mine = [(slot, self.task[index]) for slot, index in slots[self.ctx.rank :: self.ctx.world_size]]
        self._slots |= dict(mine)
        goes_on = isinstance(self.rollout, ContinuingRollout) or self.rollout.max_age(self.ctx.sampling) > 0
        plays = mine or goes_on
        episodes = self._count(self.rollout.collect(mine, self.ctx) if plays else [])
        groups = list(group_episodes(parallel.gather([e.light() for e in episodes])).values())
        self.curriculum.observe(groups)
        self.rollout.observe(groups)
        for episode in episodes:  # of groups that were begun in earlier iterations
            self._slots.setdefault(episode.group, episode.prompt)
        return episodes

    def collect_samples(self, indices: Mapping[int, range]) -> list[Episode]:
        """Collect and score further episodes of this rank's prompts; the curriculum does not see them."""
        slots = [(slot, self._slots[slot]) for slot, samples in indices.items() if samples]
        episodes = self.rollout.collect(slots, replace(self.ctx, requested_indices=dict(indices))) if slots else []
        expected = sorted((slot, index) for slot, _ in slots for index in indices[slot])
        if sorted((episode.group, episode.sample_index) for episode in episodes) != expected:
            raise ValueError(
                f"data.rollout ({type(self.rollout).__name__}) cannot collect further episodes of a prompt: it numbers "
                "them by itself; leave transforms that ask for more episodes out of data.transforms"
            )
        return self._count(episodes)

    def metrics(self, everywhere: Sequence[Episode], kept: Sequence[Episode], seconds: float) -> dict[str, float]:
        """Metrics of the collection over all ranks; times are of this rank.

        Args:
            everywhere: the first episodes of all ranks, light.
            kept: this rank's episodes to train on.
            seconds: spent on rollout, scoring and transforms.
        """
        rollout_seconds = seconds - self.scoring
        num_kept = sum(parallel.gather([len(kept)]))
        rows = sum(parallel.gather([sum(len(episode.turns) for episode in kept)]))
        episodes, choices = (sum(parallel.gather([number])) for number in (self.episodes, self.choices))
        return {
            **episode_metrics(everywhere, num_kept, rows),
            **self.rollout.metrics(),
            "rollout/episodes_collected": float(episodes),
            "rollout/tokens_per_second": choices / rollout_seconds,
            "time/rollout": rollout_seconds,
            "time/score": self.scoring,
        }

    def _count(self, episodes: list[Episode]) -> list[Episode]:
        """Score episodes and count them."""
        started = time.perf_counter()
        self.score(episodes)
        self.scoring += time.perf_counter() - started
        self.choices += sum(episode.tokens for episode in episodes)
        self.episodes += len(episodes)
        return episodes


def episode_metrics(episodes: Sequence[Episode], kept: int, rows: int) -> dict[str, float]:
    """Compute means over the episodes of all ranks. Episodes with errors are counted but not averaged.

    What a rollout counted in `info["counts"]`, by name, is summed.

    Args:
        episodes: light episodes of all ranks, before any was dropped.
        kept: episodes that are trained on, over all ranks.
        rows: rows that are trained on, over all ranks.
    """
    finished = [episode for episode in episodes if episode.ended != "error"]
    out = {"errors": float(len(episodes) - len(finished)), "episodes": float(kept), "rows": float(rows)}
    if finished:
        out["reward"] = _mean([e.reward for e in finished])
        out["tokens_mean"] = _mean([e.info["tokens"] for e in finished])
        out["truncated_fraction"] = _mean([float(e.ended == "length") for e in finished])
        for name in sorted({name for e in finished for name in e.scores}):
            out[f"score/{name}"] = _mean([e.scores[name] for e in finished if name in e.scores])
    counts = [episode.info.get("counts", {}) for episode in episodes]  # of episodes with errors too
    for name in sorted({name for one in counts for name in one}):
        out[name] = float(sum(one.get(name, 0) for one in counts))
    return {f"rollout/{name}": value for name, value in out.items()}


def _mean(values: Sequence[float]) -> float:
    return float(sum(values) / len(values))


@runtime_checkable
class ProgressCallback(Protocol):
    """Callback that receives the progress of a collection."""

    def on_rollout_progress(self, phase: str, done: int, of: int) -> None: ...


@runtime_checkable
class RolloutCallback(Protocol):
    """Callback that receives the episodes of an iteration and the annotated rows, before they are trained on."""

    def on_rollout_end(self, trainer: Any, collected: Collected, batch: Batch, ctx: Context) -> None: ...


def notify_rollout_end(trainer: Any, collected: Collected, batch: Batch, ctx: Context) -> None:
    """Call `on_rollout_end` of every callback of the trainer that has it."""
    for callback in trainer.callbacks:
        if isinstance(callback, RolloutCallback):
            callback.on_rollout_end(trainer, collected, batch, ctx)


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
    """Return the frozen models that the rollouts, transforms and reward of a data module sample from, by name.

    Raises:
        ConfigError: the learner has no such model, or trains it.
    """
    held_out = [] if data.evaluation is None else [data.evaluation.rollout, *data.evaluation.transforms.values()]
    names = sorted(list_models([data.rollout, data.reward, *data.transforms.values(), *held_out]))
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
