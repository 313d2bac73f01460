"""Write scores and rewards into episodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
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


def score(episodes: Sequence[Episode], task: Task, reward: Reward) -> None:
    """Write scores and the reward into finished episodes; episodes with errors get neither.

    Raises ValueError where a score or a reward is missing, NaN or infinite.
    """
    finished = [episode for episode in episodes if episode.ended != "error"]
    all_scores = task.scores(finished)
    if len(all_scores) != len(finished):
        raise ValueError(f"task {task.name!r} scored {len(all_scores)} of {len(finished)} episodes; give one dict each")
    for episode, scores in zip(finished, all_scores):
        if wrong := sorted(name for name, number in scores.items() if not math.isfinite(number)):
            raise ValueError(
                f"task {task.name!r} scored {episode.prompt.key!r} {wrong[0]}={scores[wrong[0]]}, which is no finite "
                f"number; the output was {_shorten(episode.output)}"
            )
        episode.scores = scores
    for episode, further in zip(finished, reward.scores(finished)):
        if episode.ended == "error":
            continue
        if twice := sorted(further.keys() & episode.scores.keys()):
            raise ValueError(
                f"data.reward gives a score {twice[0]!r}, and so does task {task.name!r}; rename the reward function"
            )
        episode.scores = {**episode.scores, **further}
    finished = [episode for episode in finished if episode.ended != "error"]  # some may have no score after all
    for group in group_episodes(finished).values():
        rewards = list(reward(group))
        if len(rewards) != len(group):
            raise ValueError(
                f"data.reward ({type(reward).__name__}) gave {len(rewards)} rewards to the {len(group)} episodes of "
                f"{group[0].prompt.key!r}; it has to give one each, in order"
            )
        for episode, number in zip(group, rewards):
            episode.reward = float(number)
            if not math.isfinite(episode.reward):
                raise ValueError(
                    f"data.reward ({type(reward).__name__}) gave {episode.prompt.key!r} {episode.reward} for "
                    f"the scores {episode.scores}; the output was {_shorten(episode.output)}"
                )


def _shorten(output: object, length: int = 200) -> str:
    text = repr(output)
    return text if len(text) <= length else text[:length] + "..."
