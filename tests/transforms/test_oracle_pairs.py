"""Pairs by an oracle: examples for the laws; draws and tournaments are in tests/evaluation/metrics."""

import pytest

from mmrl.rewards.models.oracle import PreferenceOracle
from mmrl.transforms.oracle_pairs import OraclePairs


class First(PreferenceOracle):
    """The answer that is first in the alphabet wins."""

    def prefer(self, prompt, first, second):
        return 0.5 if first == second else float(first < second)


LAWS = [lambda: OraclePairs(First()), lambda: OraclePairs(First(), "tournament")]


@pytest.mark.parametrize("part", LAWS)
def test_it_writes_the_preference(part):
    assert part().writes() == {"preference"}
