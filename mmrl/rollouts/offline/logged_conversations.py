"""Rollout that reads conversations of a log with the rewards of their turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mmrl.core.types import Context, Episode, Prompt, Task
from mmrl.rollouts.offline.demonstrations import Demonstrations


class LoggedConversations(Demonstrations):
    """One episode per prompt: a row for each turn of the assistant, with its recorded reward.

    The observation of a turn are the messages before it. The episode is over after the last turn.
    """

    def check_task(self, task: Task) -> None:
        if "turn_rewards" not in task[0].info:
            raise ValueError(
                f"rollout=logged_conversations: task {task.name!r} has no rewards of turns; use task=conversation_log"
            )

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        return [_with_rewards(episode, ctx.iteration) for episode in super().collect(prompts, ctx)]


def _with_rewards(episode: Episode, iteration: int) -> Episode:
    """The episode with its rewards; its rows have the iteration's version, which what is sampled after them takes."""
    rewards = episode.prompt.info["turn_rewards"]
    turns = [
        replace(turn, reward=reward, completion=replace(turn.completion, policy_version=iteration))
        for turn, reward in zip(episode.turns, rewards, strict=True)
    ]
    return replace(episode, turns=turns)
