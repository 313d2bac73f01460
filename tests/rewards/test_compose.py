"""One number out of named scores."""

import pytest

from mmrl.rewards.compose import WeightedSum
from mmrl.types import Episode, Prompt


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
