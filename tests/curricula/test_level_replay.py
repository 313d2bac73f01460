"""Prioritised Level Replay: scores and probabilities by hand, and which levels come again."""

from collections import Counter

import numpy as np
import pytest

from mmrl.curricula.level_replay import LevelReplay, max_return_regret, rank_probs, staleness_probs
from tests.curricula.test_levels import ended, levels, on_levels

LAWS = [lambda: LevelReplay(least=4, capacity=8)]


def test_the_regret_by_hand():
    assert max_return_regret(0.9, [0.2, 0.4]) == pytest.approx(0.6)
    assert max_return_regret(0.5, [0.5, 0.5]) == 0


def test_probabilities_by_rank_by_hand():
    # ranks 3, 1, 2 with temperature 1: 1/3, 1, 1/2 over 11/6
    assert rank_probs(np.array([0.1, 0.9, 0.5]), 1.0).tolist() == pytest.approx([2 / 11, 6 / 11, 3 / 11])
    # temperature 1/2: 1/9, 1, 1/4 over 49/36
    assert rank_probs(np.array([0.1, 0.9, 0.5]), 0.5).tolist() == pytest.approx([4 / 49, 36 / 49, 9 / 49])
    # of equal scores the first has rank 1
    assert rank_probs(np.zeros(2), 1.0).tolist() == pytest.approx([2 / 3, 1 / 3])


def test_probabilities_by_age_by_hand():
    assert staleness_probs(np.array([2, 5, 7]), 8).tolist() == pytest.approx([0.6, 0.3, 0.1])
    assert staleness_probs(np.array([8, 8]), 8).tolist() == [0.5, 0.5]


def test_a_level_keeps_its_best_return_and_the_regret_of_its_last_visit():
    replay, level = LevelReplay(least=1), np.array([0.25, 0.5])
    replay.visit(level, [0.2, 0.6])
    assert replay.levels == {(0.25, 0.5): [0.6, pytest.approx(0.2), 1.0]}
    replay.visit(level, [0.1, 0.3])  # the best is that of the first visit
    assert replay.levels == {(0.25, 0.5): [0.6, pytest.approx(0.4), 2.0]}


def test_a_full_store_drops_its_lowest_score():
    replay = LevelReplay(least=1, capacity=2)
    for place, returns in ((0.1, [1.0, 0.0]), (0.2, [0.2, 0.0]), (0.3, [0.05, 0.0]), (0.4, [0.6, 0.0])):
        replay.visit(np.array([place]), returns)
    # scores .5, .1, .025 (too low), .3
    assert {level: values[1] for level, values in replay.levels.items()} == {(0.1,): 0.5, (0.4,): 0.3}


def test_stored_levels_come_again_as_they_are_and_new_ones_are_uniform():
    """Of 800 draws half are replayed; nine in ten of those are the level of the highest score (temperature 0.1)."""
    replay = LevelReplay(replay_prob=0.5, least=4, capacity=8, staleness=0.0)
    first = levels(replay, 8)
    groups = [[ended(*level, group=k, **{"return": r}) for r in (0.1 * k, 0.0)] for k, level in enumerate(first)]
    replay.observe(groups)
    drawn = [tuple(level.round(6)) for level in levels(replay, 800, on_levels(1))]
    again = Counter(level for level in drawn if level in {tuple(level.round(6)) for level in first})
    assert abs(sum(again.values()) - 400) < 75  # a standard deviation of 14
    # 2^-10 for the second rank, and less for the others
    assert again.most_common(1)[0] == (tuple(first[7].round(6)), max(again.values())) and len(again) <= 3
    fresh = np.array([level for level in drawn if level not in again])
    assert len({tuple(level) for level in fresh}) == len(fresh) and abs(fresh[:, 0].mean() - 3) < 0.3


def test_old_levels_come_again_too():
    replay = LevelReplay(replay_prob=1.0, least=2, capacity=4, staleness=1.0)
    replay.visit(np.array([0.25, 0.5]), [0.0])
    for _ in range(3):
        replay.visit(np.array([0.75, 0.5]), [1.0, 0.0])
    # ages 3 and 0
    assert {tuple(level.round(3)) for level in levels(replay, 20)} == {(2.0, 0.0)}


def test_nothing_is_replayed_before_there_are_enough():
    replay = LevelReplay(replay_prob=1.0, least=3)
    replay.visit(np.array([0.25, 0.5]), [0.0])
    assert len({tuple(level) for level in levels(replay, 20)}) == 20


def test_bad_settings_are_refused():
    for wrong in ({"replay_prob": 1.5}, {"capacity": 0}, {"temperature": 0.0}, {"staleness": -0.1}):
        with pytest.raises(ValueError, match=f"curriculum.{next(iter(wrong))}"):
            LevelReplay(**wrong)
    with pytest.raises(ValueError, match=r"least=9 must not exceed curriculum.capacity=8"):
        LevelReplay(least=9, capacity=8)
