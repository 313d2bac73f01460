"""Add the task's reference answer to each group as a demonstration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from mmrl.core.columns import per_choice
from mmrl.core.groups import group_episodes
from mmrl.core.types import Completion, Context, Episode, Turn
from mmrl.transforms.base import EpisodeTransform


@dataclass(frozen=True)
class AddDemonstration(EpisodeTransform):
    """Add the demonstration of the prompt to each group; it is scored and compared like sampled episodes.

    The policy did not sample it: its row is `is_demo`, its `behavior_logprobs` are 0, and a ratio is taken against
    `old_logprobs`, which the annotator `old` finds for it as for the others. It is for policies whose rows are whole
    answers.

    Args:
        reward: what it earns; none asks the task's verifier, which may refuse it.
        yields: once an episode earned as much as it would, it earns the mean of the episodes, so that it pulls no more.
    """

    reward: float | None = None
    yields: bool = False

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        groups = group_episodes(episodes)
        shows = iter(ctx.task.demonstrations([group[0].prompt for group in groups.values()]) if groups else [])
        added = {
            slot: self._build_demonstration(group, [output for _, output in next(shows)], ctx)
            for slot, group in groups.items()
        }
        if self.reward is None and added:
            ctx.collector.score(list(added.values()))
        for slot, episode in added.items():
            earned = [episode.reward for episode in groups[slot]]
            episode.reward = episode.reward if self.reward is None else self.reward
            if self.yields and max(earned) >= episode.reward:
                episode.reward = sum(earned) / len(earned)
        return [episode for slot, group in groups.items() for episode in (*group, added[slot])]

    def _build_demonstration(self, group: Sequence[Episode], outputs: Sequence[str], ctx: Context) -> Episode:
        first = group[0]
        if len(outputs) != 1 or len(first.turns) != 1:
            raise ValueError(
                f"add_demonstration: {first.prompt.key!r} is answered in {len(first.turns)} rows and demonstrated in "
                f"{len(outputs)}; this is for answers of one row"
            )
        turn = Turn(_completion(first.turns[0].completion, first, outputs[0], ctx))
        number = max(episode.sample_index for episode in group) + 1
        return Episode(first.prompt, first.group, number, [turn], source="demo")


def _completion(like: Completion, episode: Episode, output: str, ctx: Context) -> Completion:
    """Encode the demonstration in the context of an episode of its group, which shares the prompt."""
    odd = sorted(name for name in like.extra if per_choice(name))
    if odd:
        raise ValueError(
            f"add_demonstration: the episodes of {episode.prompt.key!r} carry {odd}, which a demonstration lacks; "
            "sample without truncation, and put it before transforms that add such columns"
        )
    action = ctx.policy.encode_demonstration(episode.prompt.observation, output)
    length = len(action)
    columns = {
        "action": action,
        "behavior_logprobs": torch.zeros(length),
        "action_mask": torch.ones(length, dtype=torch.bool),
    }
    return replace(like, **columns, output=output, ended="done", value=None)
