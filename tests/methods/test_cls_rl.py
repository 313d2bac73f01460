"""Rewards of image classification, by hand, and on what the task asks."""

import pytest
import torch

from mmrl.methods.cls_rl import direct_answer, thought_and_answer
from mmrl.rewards.function import FunctionReward
from mmrl.types import Completion, Episode, Prompt, Turn


@pytest.mark.parametrize(
    ("completion", "reward"),
    [("Tabby cat", 1), ("tabby cat", 0), ("It is a Tabby cat", 0), ("Tabby cat ", 0), ("", 0)],
)
def test_without_a_thought_the_completion_is_the_class(completion, reward):
    assert direct_answer(completion, "Tabby cat") == reward


@pytest.mark.parametrize(
    ("completion", "accuracy", "tags"),
    [
        ("<think>stripes</think><answer>tabby cat</answer>", 1, 1),
        ("<think>stripes</think>\n<answer> Tabby Cat </answer>", 1, 1),
        ("<think>stripes</think><answer>lynx</answer>", 0, 1),
        ("<answer>Tabby cat</answer>", 1, 0),
        ("Tabby cat", 0, 0),
    ],
)
def test_with_a_thought_case_does_not_count_and_the_format_does(completion, accuracy, tags):
    assert thought_and_answer(completion, "Tabby cat") == {"accuracy": accuracy, "tags": tags}


def test_the_two_scores_are_added():
    reward = FunctionReward(["mmrl.methods.cls_rl:thought_and_answer"], in_process=True)
    text = "<think>stripes</think><answer>tabby cat</answer>"
    done = Completion({}, torch.zeros(3).long(), torch.zeros(3), torch.ones(3).bool(), text)
    episode = Episode(Prompt("p", answer="Tabby cat"), 0, 0, [Turn(done)])
    (episode.scores,) = reward.scores([episode])
    assert reward([episode]) == [2.0]
