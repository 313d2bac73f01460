"""Scores come from the task, all at once; a bug in one names the answer that it was about."""

import pytest

from mmrl.core.types import Episode, Prompt, Task
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.scoring import score


class Strict(Task):
    name, split = "strict", "train"

    def __init__(self):
        self.asked = []

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return Prompt(f"strict/{index}")

    def on(self, split):
        return self

    def score(self, episode):
        if episode.prompt.index == 2:
            raise ZeroDivisionError
        return {"exact": float(episode.prompt.index)}


class Asking(Strict):
    def scores(self, episodes):
        self.asked.append(len(episodes))
        return [{"exact": 1.0} for _ in episodes]


def episodes(task, *indices):
    return [Episode(task[i], group=i, sample_index=0) for i in indices]


def test_a_bug_names_the_prompt_it_came_up_at():
    task = Strict()
    with pytest.raises(ZeroDivisionError) as caught:
        score(episodes(task, 0, 2), task, WeightedSum({"exact": 1.0}))
    assert "while scoring 'strict/2' of task 'strict'" in caught.value.__notes__[0]


def test_a_task_that_asks_somebody_is_asked_once_and_not_about_failures():
    task = Asking()
    played = [*episodes(task, 0, 1), Episode(task[3], 3, 0, ended="error")]
    score(played, task, WeightedSum({"exact": 1.0}))
    assert task.asked == [2] and [each.reward for each in played] == [1.0, 1.0, 0.0] and not played[2].scores
