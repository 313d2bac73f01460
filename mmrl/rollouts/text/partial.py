"""Partial rollouts: a completion that is cut goes on in the next iteration, with the weights of that one."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mmrl.core.errors import check_at_least, check_positive
from mmrl.core.rng import advance_seed
from mmrl.core.types import Completion, Context, Episode, Prompt, Request, Sampling, Turn
from mmrl.distributed import parallel
from mmrl.rollouts.base import text_observation, turn_seed
from mmrl.rollouts.text.joined import VERSIONS, end_at_stop, join, with_versions
from mmrl.rollouts.text.single_turn import SingleTurn

STRIDE = 2**20
"""Groups of one iteration; those that were begun n iterations ago are numbered from n times as many."""


@dataclass
class UnfinishedGroup:
    """The completions of a prompt, some of which were cut."""

    begun: int  # iteration
    slot: int  # in it
    prompt: Prompt
    parts: list[Completion | None]  # by sample index; None before the first choice

    def running(self) -> list[int]:
        """Return the sample indices of the completions that go on."""
        return [i for i, part in enumerate(self.parts) if part is None or part.ended == "cut"]


class PartialRollout(SingleTurn):
    """Single-turn rollout that cuts long completions, so that an iteration does not wait for them.

    A completion goes on in the next iteration from its ids so far. A group is learned from when all its completions
    have ended, so that an iteration has the groups that ended in it, and may have none. Every choice keeps the log-prob
    and the version of the weights that drew it (`behavior_logprobs`, `choice_versions`); a row's `policy_version` is
    that of its first choice, at most `max_age` older than the newest. With `cut_tokens` alone the same seed gives the
    same run, and with equal weights the completions are those that were not cut; the time of `cut_seconds` is not
    reproducible. Held-out completions are not cut. Source: Kimi k1.5, 2025, partial rollouts, section 2.6.2,
    arXiv:2501.12599; AReaL, 2025, interruptible generation, section 5.2, arXiv:2505.24298.

    Args:
        cut_tokens: most tokens that a completion is given in an iteration; None for no such limit.
        cut_seconds: after which an iteration gives no completion further tokens; None for no such limit.
        segment_tokens: tokens between two looks at the clock, with cut_seconds; at least so many are given.
    """

    def __init__(self, cut_tokens: int | None = None, cut_seconds: float | None = None, segment_tokens: int = 256):
        if cut_tokens is None and cut_seconds is None:
            raise ValueError("rollout (partial) cuts nothing: set rollout.cut_tokens or rollout.cut_seconds")
        check_at_least(1, "rollout", segment_tokens=segment_tokens, cut_tokens=1 if cut_tokens is None else cut_tokens)
        check_positive("rollout", cut_seconds=1.0 if cut_seconds is None else cut_seconds)
        self.cut_tokens, self.cut_seconds, self.segment_tokens = cut_tokens, cut_seconds, segment_tokens
        limit = math.inf if cut_tokens is None else cut_tokens
        self._step = int(limit if cut_seconds is None else min(limit, segment_tokens))  # tokens of one call
        self._groups: list[UnfinishedGroup] = []
        self._longest = 0  # largest sampling.max_tokens of the run
        self._spare: list[Episode] = []
        self._saved: Sequence[Mapping[str, Any]] = ()

    cuts = True

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({VERSIONS})

    def max_age(self, sampling: Sampling) -> int:
        return -(-max(self._longest, sampling.max_tokens) // self._step) - 1

    def spare_episodes(self) -> list[Episode]:
        return self._spare

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        if ctx.purpose != "train":
            return super().collect(prompts, ctx)
        if ctx.requested_indices is not None:  # further samples of a prompt
            return [_episode_with_versions(episode) for episode in super().collect(prompts, ctx)]
        self._check(ctx, [slot for slot, _ in prompts])
        self._restore(ctx)
        self._groups += [
            UnfinishedGroup(ctx.iteration, slot, prompt, [None] * len(ctx.sample_indices(slot)))
            for slot, prompt in prompts
        ]
        self._play(ctx)
        ended = [group for group in self._groups if not group.running()]
        self._groups = [group for group in self._groups if group.running()]
        self._spare = [] if ended or not self._groups else [self._stand_in(self._groups[0], ctx)]
        return [episode for group in ended for episode in _episodes(group, ctx)]

    def metrics(self) -> dict[str, float]:
        unfinished = parallel.gather([sum(len(group.running()) for group in self._groups)])
        return {"rollout/unfinished": float(sum(unfinished))}

    # ---------------------------------------------------------------- sampling

    def _play(self, ctx: Context) -> None:
        """Give every running completion its tokens of this iteration."""
        began, given = time.monotonic(), 0
        limit = math.inf if self.cut_tokens is None else self.cut_tokens
        while any(group.running() for group in self._groups):
            self._sample_segment(ctx, int(min(self._step, limit - given)))
            given += self._step
            if given >= limit or (self.cut_seconds is not None and time.monotonic() - began >= self.cut_seconds):
                return

    def _sample_segment(self, ctx: Context, step: int) -> None:
        """Continue every running completion by at most `step` tokens."""
        by_length: dict[int, list[tuple[UnfinishedGroup, int]]] = {}  # with the same number of tokens to come
        for group, i in self._running():
            part = group.parts[i]
            left = ctx.sampling.max_tokens - (0 if part is None else len(part.action))
            # of a schedule of sampling.max_tokens that fell below the length, one more
            by_length.setdefault(min(step, max(left, 1)), []).append((group, i))
        for count, places in sorted(by_length.items(), key=lambda item: item[0]):
            ctx.progress("rollout", 0, len(places))
            requests = [_continue(group, i, ctx) for group, i in places]
            completions = ctx.engine.sample(requests, replace(ctx.sampling, max_tokens=count))
            for (group, i), more in zip(places, completions, strict=True):
                group.parts[i] = _add(group.parts[i], with_versions(more), ctx)
            ctx.progress("rollout", len(places), len(places))

    def _running(self) -> Iterator[tuple[UnfinishedGroup, int]]:
        yield from ((group, i) for group in self._groups for i in group.running())

    def _stand_in(self, group: UnfinishedGroup, ctx: Context) -> Episode:
        """Return the first cut completion as an episode: a process without a row needs one that has its columns."""
        i = group.running()[0]
        spare = replace(_episodes(group, ctx)[i], ended="cut")
        ctx.collector.score([spare])
        return spare

    def _check(self, ctx: Context, slots: Sequence[int]) -> None:
        if ctx.sampling.annealing is not None:
            raise ValueError("rollout (partial): sampling.annealing counts tokens from a cut; set it to null")
        self._longest = max(self._longest, ctx.sampling.max_tokens)
        if self.max_age(ctx.sampling) >= 2047 or max(slots, default=0) >= STRIDE:
            raise ValueError(
                f"rollout (partial): sampling.max_tokens={ctx.sampling.max_tokens} takes "
                f"{self.max_age(ctx.sampling) + 1} iterations, more than 2047; raise rollout.cut_tokens"
            )

    # ---------------------------------------------------------------- the state

    def state_dict(self) -> dict[str, Any]:
        groups = [_save(group) for group in self._groups]
        return {"groups": groups or list(self._saved), "longest": self._longest}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._groups, self._saved, self._longest = [], state.get("groups", ()), state.get("longest", 0)

    def _restore(self, ctx: Context) -> None:
        """Build the groups of a checkpoint again, whose prompts are those of the task."""
        saved, self._saved = self._saved, ()
        for entry in saved:
            prompt = ctx.task[entry["index"]]
            if prompt.key != entry["key"]:
                raise ValueError(
                    f"the checkpoint has an unfinished completion of {entry['key']!r}, and problem {entry['index']} of "
                    f"task {ctx.task.name!r} is {prompt.key!r}; resume with the same task"
                )
            observation = ctx.policy.encode(text_observation(prompt))
            identity = (entry["begun"], entry["slot"])
            parts = [Completion(observation=observation, prompt_id=identity, **part) for part in entry["parts"]]
            self._groups.append(UnfinishedGroup(*identity, prompt, list(parts)))


def _continue(group: UnfinishedGroup, i: int, ctx: Context) -> Request:
    """Return the request whose completion continues a part with the draws that follow those so far."""
    part = group.parts[i]
    seed = turn_seed(group.slot, i, replace(ctx, iteration=group.begun))
    raw, identity = text_observation(group.prompt), (group.begun, group.slot)
    if part is None:
        return Request(raw, seed, prompt_id=identity)
    return Request(raw, advance_seed(seed, len(part.action)), prefix=part.action, prompt_id=identity)


def _add(part: Completion | None, more: Completion, ctx: Context) -> Completion:
    """Return the completion with a further part; one that has not ended by then is cut."""
    if part is not None and more.ended == "error":
        return replace(part, ended="error")
    done = more if part is None else join(part, more)
    if part is not None:
        if ctx.sampling.stop:
            reach = 4 * max(map(len, ctx.sampling.stop))  # no character has more than four tokens
            done = end_at_stop(done, len(part.action), ctx.policy.stop_condition(ctx.sampling.stop), reach)  # type: ignore[operator]
        done = replace(done, output=ctx.policy.decode(done.action.tolist()))
    cut = done.ended == "length" and len(done.action) < ctx.sampling.max_tokens
    return replace(done, ended="cut") if cut else done


def _episodes(group: UnfinishedGroup, ctx: Context) -> list[Episode]:
    """Return the completions so far as episodes; the number of the group is unique in this iteration."""
    number = (ctx.iteration - group.begun) * STRIDE + group.slot
    return [
        Episode(group.prompt, group=number, sample_index=i, turns=[Turn(part)], ended=part.ended)
        for i, part in enumerate(group.parts)
        if part is not None
    ]


def _episode_with_versions(episode: Episode) -> Episode:
    return replace(episode, turns=[Turn(with_versions(turn.completion), turn.reward) for turn in episode.turns])


def _save(group: UnfinishedGroup) -> dict[str, Any]:
    """Return a group as plain values and tensors."""
    names = ("action", "behavior_logprobs", "action_mask", "output", "ended", "value", "extra", "policy_version")
    parts = [{name: getattr(part, name) for name in names} for part in group.parts if part is not None]
    return {"begun": group.begun, "slot": group.slot, "index": group.prompt.index, "key": group.prompt.key} | {
        "parts": parts
    }
