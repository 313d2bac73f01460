"""Per-step DPO: preference pairs that begin at the first step of a wrong solution that lowers the value.

RL on Incorrect Synthetic Data Scales the Efficiency of LLM Math Reasoning by Eight-Fold, 2024, arXiv:2406.14532.

- values of the states in which steps begin, by Monte Carlo: `rollout=steps`
- the first step that lowers the value, the first pit: `find_pit`
- a completion with a pit, and a right one that goes on from the steps before it, as a pair: `PitPairs`
- the loss: `DPOLoss`; both rows of a pair begin with the same steps, whose log-ratios cancel in the margin

More than 150 lines, since a right continuation is joined to the first steps of another completion, token by token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch

from mmrl.core.columns import per_choice
from mmrl.core.errors import check_at_least, check_interval
from mmrl.core.groups import group_episodes
from mmrl.core.rng import derive_seed
from mmrl.core.types import Completion, Context, Episode, Request, Turn
from mmrl.rollouts.text.joined import truncate
from mmrl.transforms.base import EpisodeTransform
from mmrl.transforms.best_worst import label_preference


def find_pit(values: Sequence[float], min_drop: float) -> int | None:
    """First step k with values[k] - values[k + 1] >= min_drop, minus its advantage; None if there is no such step.

    Args:
        values: success rates before each step, and after the last one.
        min_drop: of the success rate.
    """
    return next((k for k, (before, after) in enumerate(pairwise(values)) if before - after >= min_drop), None)


@dataclass(frozen=True)
class PitPairs(EpisodeTransform):
    """Preference pair per group: the first wrong completion with a pit (rejected), a correct continuation (chosen).

    The continuation is sampled from the state in which the pit begins, the first right one of `continuations`; a group
    without a pit, or without a right continuation, gives no pair. Rewards, and so values, are success rates in [0, 1].
    Source: RL on Incorrect Synthetic Data, 2024, section 5, arXiv:2406.14532.

    Args:
        continuations: that are sampled at a pit.
        min_drop: smallest drop of the success rate at a pit.
        success_threshold: smallest reward of a right completion.
    """

    continuations: int = 8
    min_drop: float = 0.25
    success_threshold: float = 1.0

    def __post_init__(self) -> None:
        check_at_least(1, "pit_pairs", continuations=self.continuations)
        check_interval("pit_pairs", "(0, 1]", min_drop=self.min_drop)

    def writes(self) -> frozenset[str]:
        return frozenset({"preference"})

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        groups = group_episodes(episodes).values()
        pits = [pit for group in groups if (pit := next(self._find(group), None)) is not None]
        # `continuations` requests per pit, from the choices before it
        requests = [
            Request(episode.prompt.observation, seed, _action(episode)[:start] if start else None, episode.group)
            for episode, start in pits
            for seed in self._seeds(episode, start, ctx)
        ]
        sampled = iter(ctx.engine.sample(requests, ctx.sampling) if requests else [])
        # (pits, continuations) episodes: the choices before the pit and a sampled rest
        continuations = [
            [_continue(episode, start, next(sampled), ctx) for _ in range(self.continuations)]
            for episode, start in pits
        ]
        _score(continuations, ctx)
        pairs: list[Episode] = []
        for (rejected, _), row in zip(pits, continuations):
            right = next((e for e in row if e.ended != "error" and e.reward >= self.success_threshold), None)
            if right is not None:
                pairs += [label_preference(right, 1), _label(rejected, -1)]
        if not pairs and len(episodes) == 1:  # of a process without rows, whose one row is masked and needs the column
            return [_label(episodes[0], 0)]
        return pairs

    def _find(self, group: Sequence[Episode]) -> Iterator[tuple[Episode, int]]:
        """Wrong episodes with a pit, and the choices before it."""
        for episode in group:
            done = episode.turns[0].completion
            if "segment" not in done.extra or done.value is None:
                raise ValueError(
                    f"pit_pairs: {episode.prompt.key!r} has no values of steps; choose rollout=steps, and put this "
                    "before transforms that drop them"
                )
            if episode.reward < self.success_threshold:
                segment = done.extra["segment"]
                starts = [int((segment < k).sum()) for k in range(int(segment[-1]) + 1)]
                values = [float(done.value[start]) for start in starts]
                pit = find_pit([*values, episode.reward], self.min_drop)
                if pit is not None:
                    yield episode, starts[pit]

    def _seeds(self, episode: Episode, start: int, ctx: Context) -> list[int]:
        ids = _action(episode)[:start].tolist()
        key = ctx.seed, ctx.purpose, ctx.iteration, episode.group, "pit"
        return [derive_seed(*key, k, *ids) for k in range(self.continuations)]


def _score(continuations: Sequence[Sequence[Episode]], ctx: Context) -> None:
    """Score continuations one by one: each is a group of its own while it is scored."""
    each = [episode for row in continuations for episode in row]
    groups = [episode.group for episode in each]
    for number, episode in enumerate(each):
        episode.group = number
    if each:
        ctx.collector.score(each)
    for episode, group in zip(each, groups):
        episode.group = group


def _label(episode: Episode, sign: int) -> Episode:
    """Label a sampled episode as `label_preference` does, and drop its columns per step."""
    return label_preference(replace(episode, turns=[Turn(_plain(episode.turns[0].completion))]), sign)


def _action(episode: Episode) -> torch.Tensor:
    return episode.turns[0].completion.action


def _continue(episode: Episode, start: int, done: Completion, ctx: Context) -> Episode:
    """The first choices of an episode and a continuation, no longer than a completion may be."""
    first = episode.turns[0].completion
    plain, done = _plain(first), truncate(done, ctx.sampling.max_tokens - start)
    parts: dict[str, Any] = {
        name: torch.cat([getattr(first, name)[:start], getattr(done, name)])
        for name in ("action", "behavior_logprobs", "action_mask")
    }
    whole = replace(plain, **parts, output=ctx.policy.decode(parts["action"].tolist()), ended=done.ended)
    return Episode(episode.prompt, episode.group, ctx.group_size, [Turn(whole)], ended=done.ended)


def _plain(done: Completion) -> Completion:
    """The completion without the columns per step."""
    extra = {name: column for name, column in done.extra.items() if name != "segment"}
    if odd := sorted(name for name in extra if per_choice(name)):
        raise ValueError(f"pit_pairs: completions carry {odd}, which a continuation lacks; sample without truncation")
    return replace(done, value=None, extra=extra)
