"""Showing how it is done where no episode got there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mmrl.episodes.base import EpisodeTransform
from mmrl.episodes.filter import grouped
from mmrl.rng import derive_seed
from mmrl.rollouts.demonstrations import demonstration, seeded
from mmrl.types import Context, Episode, Request, Turn


@dataclass(frozen=True)
class Demonstrate(EpisodeTransform):
    """A group in which every episode failed gives way to the task's own demonstration of its prompt.

    Nothing can be trained on comparing failures, and a demonstration is compared with nothing: its advantage is 0 and
    an imitation term on the rows `is_demo` learns from it, for example
    `objective: {terms: {imitation: {...}}, coefficients: {imitation: 0.1}, row_masks: {imitation: is_demo}}`.
    Stands before transforms that drop groups, which leave demonstrations alone.

    Args:
        score_name: that says whether an episode succeeded.
        success_threshold: smallest value of the score that is a success.
        max_fraction: of the failed groups that are replaced, the first ones; the others stay as they are.
    """

    score_name: str = "success"
    success_threshold: float = 1.0
    max_fraction: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.max_fraction <= 1:
            raise ValueError(f"episodes.demonstrate.max_fraction must be in (0, 1], got {self.max_fraction}")

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        groups = grouped(episodes)
        failed = [key for key, group in groups.items() if all(self._failed(episode) for episode in group)]
        shown = set(failed[: round(self.max_fraction * len(failed))])
        prompts = [groups[key][0].prompt for key in groups if key in shown]
        shows = iter(ctx.task.demonstrations(prompts) if prompts else [])
        out: list[Episode] = []
        for key, group in groups.items():
            if key in shown:
                turns = seeded(_turns(next(shows), key, ctx), key, ctx)
                out.append(Episode(group[0].prompt, group=key, sample_index=0, turns=turns, source="demo"))
            else:
                out += [replace(episode, turns=seeded(episode.turns, key, ctx)) for episode in group]
        return out

    def _failed(self, episode: Episode) -> bool:
        if self.score_name not in episode.scores:
            raise KeyError(
                f"episodes.demonstrate.score_name={self.score_name!r} is no score of {episode.prompt.key!r}, "
                f"which has {sorted(episode.scores)}"
            )
        return episode.scores[self.score_name] < self.success_threshold


def _turns(decisions: Sequence[tuple[Mapping[str, Any], Any]], slot: int, ctx: Context) -> list[Turn]:
    """The expert's choices in contexts that are stored as those of episodes are: by the engine."""
    seeds = [derive_seed(ctx.seed, "demonstrate", ctx.iteration, slot, step) for step in range(len(decisions))]
    sampled = ctx.engine.sample([Request(raw, seed) for (raw, _), seed in zip(decisions, seeds)], ctx.sampling)
    out = []
    for (raw, output), done in zip(decisions, sampled):
        shown = demonstration(raw, output, ctx)
        chosen = {
            "action": shown.action,
            "behavior_logprobs": shown.behavior_logprobs,
            "action_mask": shown.action_mask,
            "output": output,
        }
        out.append(Turn(replace(done, **chosen)))
    return out
