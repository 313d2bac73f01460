"""The most frequent wrong answer as the label, by hand, and how aligned a policy and a task are."""

import pytest

from mmrl.core.types import Prompt
from mmrl.evaluation.metrics.pass_at_k import pass_at_k
from mmrl.methods.problems.model_task_alignment import WrongMajority
from mmrl.rollouts.text.scripted import scripted_episode


def rewards(answers, right="r", reward=None):
    group = [scripted_episode(Prompt("toy/train/0"), answer) for answer in answers]
    for episode in group:
        episode.scores = {"exact": float(episode.output == right)}
    return (reward or WrongMajority({}))(group)


def test_the_most_frequent_wrong_answer_is_the_label():
    assert rewards("rrrabb") == [0, 0, 0, 0, 1, 1]  # the right answer is more frequent, and has no reward
    assert rewards("rabc") == [0, 1, 0, 0]  # the first of a tie
    assert rewards("rrrr") == [0, 0, 0, 0]
    assert rewards("rrab", reward=WrongMajority({"exact": 0.5})) == [0.5, 0.5, 1, 0]
    assert rewards(["", "", "a", "r"]) == [0, 0, 1, 0]  # no answer is no label


def test_the_answer_is_extracted():
    out = rewards(["it is 5", "5", "6", "7"], "7", WrongMajority({}, extract="last_number"))
    assert out == [1, 1, 0, 0]
    with pytest.raises(ValueError, match="no extractor"):
        WrongMajority({}, extract="none")
    with pytest.raises(ValueError, match="score of the task"):
        WrongMajority({}, score_name="reward")
    with pytest.raises(KeyError, match="neither 'reward' nor a score"):
        rewards("ab", reward=WrongMajority({}, score_name="solved"))


def test_alignment_is_the_pass_rate_of_the_start():
    # 1 - C(6, 4) / C(8, 4) = 1 - 15 / 70
    assert pass_at_k(8, 2, 4) == pytest.approx(1 - 15 / 70) == pytest.approx(0.785714, abs=1e-6)
    assert pass_at_k(8, 0, 4) == 0 and pass_at_k(8, 8, 4) == 1
