"""Rollout that reads logged episodes, for offline learning."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from mmrl.core.errors import check_at_least
from mmrl.core.groups import group_episodes, number_distinct
from mmrl.core.types import Completion, Context, Episode, Prompt, Turn
from mmrl.files.atomic import replace_file
from mmrl.files.foreign import check_regular
from mmrl.rollouts.base import Rollout

log = logging.getLogger(__name__)

Log = list[dict[str, Any]]
"""One entry per group, plain values and tensors alone: its key, the distinct observations, and its episodes."""


class LoggedEpisodes(Rollout):
    """Read the groups of a log in order, repeatedly, independent of the curriculum's prompts.

    Where there is no log yet, the policy as it is then plays one with any other rollout: the problems of the task in
    order, `data.group_size` episodes of each, and again with other draws where they are fewer than `count`. Rows are of
    version -1, since no weights that are learned sampled them. The task scores the episodes anew.

    Args:
        path: of the log, which is read if it is there.
        play: how the log is made where it is not; None refuses to.
        count: groups that are then played.
    """

    samples = False

    def __init__(self, path: str, play: Rollout | None = None, count: int = 1024):
        check_at_least(1, "rollout", count=count)
        self.path, self.play, self.count = Path(path), play, count
        self._log: Log | None = None

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        if self._log is None:
            self._log = self._read() if self.path.exists() else self._play(ctx)
        # this process may have one prompt more or less than others: what an iteration reads is counted over all
        first = ctx.iteration * (ctx.num_prompts or len(prompts) * ctx.world_size)
        return [e for slot, _ in prompts for e in _episodes(self._log[(first + slot) % len(self._log)], slot, ctx)]

    def _read(self) -> Log:
        remedy = "delete the file, so that rollout.play makes it again"
        check_regular(self.path, remedy)
        try:
            groups: Log = torch.load(self.path, weights_only=True)
        except Exception as error:  # of every kind, at a broken file
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise ValueError(f"rollout.path={self.path} is no log of episodes ({reason}); {remedy}") from error
        if not groups:
            raise ValueError(f"rollout.path={self.path} holds no episodes; {remedy}")
        entries = groups if isinstance(groups, list) else [None]
        if not all(
            isinstance(entry, dict) and entry.keys() >= {"key", "observations", "episodes"} for entry in entries
        ):
            raise ValueError(f"rollout.path={self.path} is no log of episodes: no list of groups; {remedy}")
        return groups

    def _play(self, ctx: Context) -> Log:
        if self.play is None:
            raise FileNotFoundError(f"rollout.path={self.path}: there is no log, and no rollout.play to make one")
        numbered = [(number, ctx.task[number % len(ctx.task)]) for number in range(self.count)]
        episodes = self.play.collect(numbered, replace(ctx, purpose="log", iteration=0))
        groups = to_log([e for e in episodes if e.ended != "error"])
        log.info("%d episodes in %d groups logged in %s", len(episodes), len(groups), self.path)
        if ctx.rank == 0:
            with replace_file(self.path) as file:  # there or not there, whenever the run is killed
                torch.save(groups, file)
        return groups


def to_log(episodes: Sequence[Episode]) -> Log:
    """Episodes of any rollout as a log."""
    entries = []
    for members in group_episodes(episodes).values():
        rows = [turn for episode in members for turn in episode.turns]
        numbers = number_distinct(turn.completion.prompt_id for turn in rows)
        observations: list[dict[str, Any]] = []
        for number, turn in zip(numbers, rows):
            if number == len(observations):
                observations.append(dict(turn.completion.observation))
        turns = iter(
            {**_completion(turn.completion), "observation": number, "reward": turn.reward}
            for number, turn in zip(numbers, rows)
        )
        records = [
            {
                "turns": list(islice(turns, len(episode.turns))),
                "ended": episode.ended,
                "scores": dict(episode.info.get("scores", {})),
            }
            for episode in members
        ]
        entries.append({"key": members[0].prompt.key, "observations": observations, "episodes": records})
    return entries


def _completion(done: Completion) -> dict[str, Any]:
    output = done.output if isinstance(done.output, str | int | float) else torch.as_tensor(done.output)
    tensors = {
        "action": done.action,
        "behavior_logprobs": done.behavior_logprobs,
        "action_mask": done.action_mask,
        "extra": dict(done.extra),
    }
    return {**{name: _own(value) for name, value in tensors.items()}, "output": output, "ended": done.ended}


def _own(value: Any) -> Any:
    """Copy a slice, so that the file does not store the whole batch."""
    return {name: part.clone() for name, part in value.items()} if isinstance(value, Mapping) else value.clone()


def _episodes(entry: Mapping[str, Any], slot: int, ctx: Context) -> list[Episode]:
    index = int(entry["key"].rsplit("/", 1)[1])
    prompt = ctx.task[index] if index < len(ctx.task) else None
    if prompt is None or prompt.key != entry["key"]:
        raise ValueError(f"the log holds {entry['key']!r}, which task {ctx.task.name!r} ({ctx.task.split}) has not")
    return [
        Episode(
            prompt,
            group=slot,
            sample_index=number,
            turns=[_turn(turn, entry["observations"], slot) for turn in episode["turns"]],
            ended=episode["ended"],
            source="replay",
            info={"scores": dict(episode["scores"])} if episode["scores"] else {},
        )
        for number, episode in enumerate(entry["episodes"])
    ]


def _turn(turn: Mapping[str, Any], observations: Sequence[dict[str, Any]], slot: int) -> Turn:
    columns = {name: turn[name] for name in ("action", "behavior_logprobs", "action_mask", "output", "ended")}
    number = turn["observation"]
    done = Completion(
        observations[number], extra=dict(turn["extra"]), policy_version=-1, prompt_id=(slot, number), **columns
    )
    return Turn(done, turn["reward"])
