"""One number out of named scores."""

import pytest
import torch

from mmrl.rewards.compose import OverlongPenalty, WeightedSum
from mmrl.types import Completion, Episode, Prompt, Turn


def episode(**scores):
    return Episode(Prompt("toy/train/0"), group=0, sample_index=0, scores=scores)


def test_weighted_sum():
    group = [episode(exact=1.0, format=1.0), episode(exact=0.0, format=1.0, unused=5.0)]
    assert WeightedSum({"exact": 1.0, "format": 0.25})(group) == [1.25, 0.25]


def test_no_weights_leave_the_reward_to_the_environment():
    assert WeightedSum({})([episode(success=1.0)]) == [0.0]


def test_refusals():
    with pytest.raises(KeyError, match=r"'exat'.*'toy/train/0'.*'exact', 'format'"):
        WeightedSum({"exat": 1.0})([episode(exact=1.0, format=1.0)])
    with pytest.raises(ValueError, match=r"'exact'.* is nan"):
        WeightedSum({"exact": 1.0})([episode(exact=float("nan"))])


def of_length(length, exact):
    completion = Completion({}, torch.zeros(length), torch.zeros(length), torch.ones(length).bool(), "")
    return Episode(Prompt("toy/train/0"), 0, 0, [Turn(completion)], scores={"exact": exact})


def test_the_penalty_falls_through_the_buffer():
    # max_tokens 10, buffer 4: 0 up to 6, (6 - 7) / 4 at 7, -1 at 10
    reward = OverlongPenalty({"exact": 2.0}, max_tokens=10, buffer_fraction=0.4)
    group = [of_length(length, exact) for length, exact in ((6, 1.0), (7, 1.0), (10, 0.0))]
    for one, further in zip(group, reward.scores(group)):
        one.scores.update(further)
    assert reward(group) == pytest.approx([2.0, 1.75, -1.0])


def test_refusal_of_a_buffer():
    with pytest.raises(ValueError, match="buffer_fraction"):
        OverlongPenalty({}, buffer_fraction=0.0)
