"""Held-out evaluation: run the policy on prompts that it is never trained on and compute metrics."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from mmrl.core.errors import ConfigError
from mmrl.core.types import Context, Episode, Prompt, Sampling, Task
from mmrl.distributed import parallel
from mmrl.evaluation.base import Evaluator
from mmrl.rewards.base import Reward
from mmrl.rewards.scoring import Scorer
from mmrl.rollouts.base import Rollout
from mmrl.transforms.base import EpisodeTransform

log = logging.getLogger(__name__)


class HeldOut:
    """Evaluate the policy on `count` held-out prompts under each decode.

    The prompts and the random draws are the same at every call, so that two policies meet the same problems.

    Args:
        rollout: how episodes are played; may differ from the training rollout.
        sampling: the decodes to measure, by name.
        evaluators: metrics of the episodes, by name.
        count: held-out prompts, over all ranks; fewer when the split is smaller.
        num_samples: episodes per prompt.
        seed: of the draws; independent of the run's seed, so that all runs meet the same draws.
        split: "held_out"; "train" only for decisions that must not use held-out problems.
        transforms: transforms of the scored episodes, by name, such as one that adds scores of the policy.
        offset: index of the first prompt, so that settings can be chosen on other prompts than those reported.
        task: arguments that the task has on these problems, for problems that are harder than those of training.
        interim_count: held-out prompts of evaluations between the first and the last of a run, the first ones of
            `count`; None for all of them.
    """

    def __init__(
        self,
        rollout: Rollout,
        sampling: dict[str, Sampling],
        evaluators: dict[str, Evaluator],
        count: int = 256,
        num_samples: int = 1,
        seed: int = 12345,
        offset: int = 0,
        split: str = "held_out",
        transforms: dict[str, EpisodeTransform] | None = None,
        interim_count: int | None = None,
        task: dict[str, Any] | None = None,
    ):
        for name, value, least in (("count", count, 1), ("num_samples", num_samples, 1), ("offset", offset, 0)):
            if value < least:
                raise ValueError(f"data.evaluation.{name} must be at least {least}, got {value}")
        if split not in ("held_out", "train"):
            raise ValueError(f"data.evaluation.split must be held_out or train, got {split!r}")
        self.rollout, self.sampling, self.evaluators = rollout, sampling, evaluators
        self.count, self.num_samples, self.seed, self.offset, self.split = count, num_samples, seed, offset, split
        self.transforms, self.task = transforms or {}, task or {}
        if interim_count is not None and not 1 <= interim_count <= count:
            raise ValueError(f"data.evaluation.interim_count must be 1 to count={count}, got {interim_count}")
        if interim_count is not None and any(evaluator.compares for evaluator in evaluators.values()):
            raise ValueError(
                "data.evaluation.interim_count: an evaluator compares with the start, which needs all prompts"
            )
        self.interim_count = interim_count
        self.only: Sequence[int] | None = None  # subset of range(count); their draws do not depend on the subset
        self.latest: dict[str, list[Episode]] = {}  # light episodes of all ranks, by decode, as last measured
        self._said: set[str] = set()  # decodes of which it was said that their completions are cut off
        self.start: dict[str, list[Episode]] = {}  # the same at the first measurement, if an evaluator compares with it

    @property
    def split_name(self) -> str:
        """What the measured problems are called: a warm start that stops early measures those of training."""
        return "training problems," if self.split == "train" else "held-out"

    def select_problems(self, task: Task) -> Task:
        """Return the task of the problems that are measured: its split, with the arguments of `task`.

        Raises:
            ConfigError: the task has no such argument.
        """
        problems = task.on(self.split)
        names = {each.name for each in fields(problems)} if is_dataclass(problems) else set()
        if unknown := sorted(self.task.keys() - names):
            raise ConfigError(f"data.evaluation.task: task {task.name!r} has no {unknown}; it has {sorted(names)}")
        if not self.task:
            return problems
        try:
            return replace(problems, **self.task)  # type: ignore[type-var]
        except Exception as error:  # of the task's constructor, which checks values and not their types
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ConfigError(f"data.evaluation.task={self.task}: {reason}; give values of the task's types") from error

    def indices(self, task: Task) -> range:
        """Return the indices of the problems in the split; problem number i has the draws of slot i."""
        return range(self.offset, min(self.offset + self.count, len(task)))

    def measure(self, task: Task, reward: Reward, ctx: Context, interim: bool = False) -> dict[str, float]:
        """Compute the metrics of every evaluator under every decode, named decode/evaluator/metric.

        Args:
            interim: whether this is neither the first nor the last evaluation of a run.
        """
        task = self.select_problems(task)
        out: dict[str, float] = {}
        self.latest = {}
        for decode, sampling in self.sampling.items():
            # this rank's episodes under one decode, then those of all ranks, without tensors
            episodes = [
                e.light() for e in self.play(task, reward, ctx, sampling, self.interim_count if interim else None)
            ]
            everyone = self.latest[decode] = parallel.gather(episodes)
            self._say_cut(decode, everyone, sampling.max_tokens, ctx)
            for name, evaluator in self.evaluators.items():
                metrics = dict(evaluator(everyone))
                if decode in self.start:
                    metrics |= evaluator.against(self.start[decode], everyone)
                out |= {f"{decode}/{name}/{key}": value for key, value in metrics.items()}
        if any(evaluator.compares for evaluator in self.evaluators.values()):
            self.start = self.start or dict(self.latest)
        return out

    def _say_cut(self, decode: str, episodes: Sequence[Episode], max_tokens: int | None, ctx: Context) -> None:
        """Say once for each decode that most completions were cut off, since an answer that is cut counts as wrong."""
        cut = sum(episode.ended == "length" for episode in episodes)
        if ctx.rank or decode in self._said or 2 * cut <= len(episodes):
            return
        self._said.add(decode)
        log.warning(
            "%s %s: %d of %d completions were cut off at sampling.max_tokens=%s; raise it if answers need more",
            self.split_name,
            decode,
            cut,
            len(episodes),
            max_tokens,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the first measurement, so that a resumed run is compared with the same start."""
        return {decode: [_plain(episode) for episode in episodes] for decode, episodes in self.start.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.start = {decode: [_episode(*row) for row in rows] for decode, rows in state.items()}

    def play(
        self, task: Task, reward: Reward, ctx: Context, sampling: Sampling, count: int | None = None
    ) -> list[Episode]:
        """Collect and score this rank's episodes of the first `count` held-out prompts under one decode."""
        indices = self.indices(task)[:count]
        slots = range(len(indices)) if self.only is None else self.only
        # ranks take every world_size-th slot; seed and iteration are fixed, so checkpoints have the same draws
        mine = [(slot, task[indices[slot]]) for slot in slots[ctx.rank :: ctx.world_size]]
        here = replace(
            ctx,
            task=task,
            sampling=sampling,
            seed=self.seed,
            iteration=0,
            purpose="eval",
            group_size=self.num_samples,
        )
        scorer = Scorer(task, reward.bind(here), getattr(ctx.policy, "opened_tag", ""))
        here = replace(here, collector=scorer)
        episodes = self.rollout.collect(mine, here)
        scorer.score(episodes)
        for transform in self.transforms.values():
            episodes = transform(episodes, here)
        return episodes


def _plain(episode: Episode) -> tuple:
    return (episode.prompt.key, episode.group, episode.sample_index, episode.ended, episode.scores, episode.info)


def _episode(
    key: str, group: int, sample_index: int, ended: Any, scores: dict[str, float], info: dict[str, Any]
) -> Episode:
    return Episode(Prompt(key), group, sample_index, ended=ended, scores=scores, info=info)
