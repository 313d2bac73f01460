"""Write scores and rewards into episodes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence, Set
from typing import Any

from mmrl.core.groups import group_episodes
from mmrl.core.types import Collector, Episode, Task
from mmrl.distributed import parallel
from mmrl.rewards.base import Reward


class Scorer(Collector):
    """Scores episodes with a task and a reward, and gathers over the processes; it collects nothing further.

    Args:
        task: problems and their verifier.
        reward: from named scores to one number per episode.
        opened_tag: a tag that the policy's chat template writes before every completion; `Episode.info["prompt_end"]`.
    """

    def __init__(self, task: Task, reward: Reward, opened_tag: str = ""):
        self.task, self.reward, self.opened_tag = task, reward, opened_tag

    def score(self, episodes: Sequence[Episode]) -> None:
        for episode in episodes if self.opened_tag else ():
            episode.info["prompt_end"] = self.opened_tag
        score(episodes, self.task, self.reward)

    def gather(self, items: Sequence[Any]) -> list[Any]:
        return parallel.gather(items)


class WrongReturn(ValueError):
    """A task or a reward returned something else than numbers for its episodes."""


def score(episodes: Sequence[Episode], task: Task, reward: Reward) -> None:
    """Write scores and the reward into finished episodes; episodes with errors get neither.

    Raises ValueError where a score or a reward is missing, no number, NaN or infinite.
    """
    finished = [episode for episode in episodes if episode.ended != "error"]
    all_scores = task.scores(finished)
    if len(all_scores) != len(finished):
        raise ValueError(f"task {task.name!r} scored {len(all_scores)} of {len(finished)} episodes; give one dict each")
    for episode, scores in zip(finished, all_scores):
        _check_scores(scores, episode, f"task {task.name!r}")
        episode.scores = scores
    add_reward(finished, task, reward)


def add_reward(episodes: Sequence[Episode], task: Task, reward: Reward) -> None:
    """Write the further scores of a reward, and the reward, into finished episodes that have the task's scores."""
    name = f"data.reward ({type(reward).__name__})"
    further_scores = reward.scores(episodes)
    if not isinstance(further_scores, Sequence) or len(further_scores) != len(episodes):
        raise WrongReturn(
            f"{name}: its scores are {_shorten(further_scores)} for {len(episodes)} episodes; return a list of one "
            "dict each, in order"
        )
    for episode, further in zip(episodes, further_scores):
        if episode.ended == "error":
            continue
        _check_scores(further, episode, name)
        if twice := sorted(further.keys() & episode.scores.keys()):
            raise ValueError(
                f"data.reward gives a score {twice[0]!r}, and so does task {task.name!r}; rename the reward function"
            )
        episode.scores = {**episode.scores, **further}
    scored = [episode for episode in episodes if episode.ended != "error"]  # some may have no score after all
    for group in group_episodes(scored).values():
        for episode, number in zip(group, _list_rewards(reward(group), group, name)):
            if not is_number(number):
                raise WrongReturn(
                    f"{name} gave {episode.prompt.key!r} {_shorten(number)} ({type(number).__name__}), which is no "
                    "number; return a list of one number for each episode, in order"
                )
            episode.reward = float(number)
            if not math.isfinite(episode.reward):
                raise ValueError(
                    f"{name} gave {episode.prompt.key!r} {episode.reward} for the scores {episode.scores}; the output "
                    f"was {_shorten(episode.output)}"
                )


def _list_rewards(rewards: Any, group: Sequence[Episode], name: str) -> list[Any]:
    """List what a reward returned for a group; refuse what has no order or another length."""
    unordered = isinstance(rewards, str | bytes | Mapping | Set)
    if unordered or getattr(rewards, "ndim", 1) == 0 or not hasattr(rewards, "__iter__"):
        raise WrongReturn(
            f"{name} returned {_shorten(rewards)} ({type(rewards).__name__}) for the {len(group)} episodes of "
            f"{group[0].prompt.key!r}; return a list of one number for each, in order"
        )
    numbers = list(itertools.islice(rewards, len(group) + 1))
    if len(numbers) != len(group):
        count = len(numbers) if len(numbers) < len(group) else f"more than {len(group)}"
        raise WrongReturn(
            f"{name} gave {count} rewards to the {len(group)} episodes of {group[0].prompt.key!r}; it has to give one "
            "each, in order"
        )
    return numbers


def _check_scores(scores: Any, episode: Episode, source: str) -> None:
    """Refuse scores of an episode that are no dict of finite numbers by name."""
    if not isinstance(scores, Mapping) or not all(isinstance(name, str) for name in scores):
        raise WrongReturn(
            f"{source} scored {episode.prompt.key!r} with {_shorten(scores)} ({type(scores).__name__}); give a dict of "
            "numbers by name"
        )
    for name in sorted(scores):
        if not is_number(scores[name]) or not math.isfinite(scores[name]):
            raise ValueError(
                f"{source} scored {episode.prompt.key!r} {name}={_shorten(scores[name])}, which is no finite number; "
                f"the output was {_shorten(episode.output)}"
            )


def is_number(value: Any) -> bool:
    """Whether a value is one real number: of Python, NumPy or torch."""
    if isinstance(value, str | bytes | bytearray):
        return False
    try:
        float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return False
    return True


def _shorten(output: object, length: int = 200) -> str:
    text = repr(output)
    return text if len(text) <= length else text[:length] + "..."
