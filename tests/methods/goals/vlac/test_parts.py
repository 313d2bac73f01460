"""VLAC: rewards and ends of listed episodes, the dead zone, and counts, by hand."""

import numpy as np
import pytest

from mmrl.core.rng import derive_rng
from mmrl.methods.goals.vlac.critic import CriticPairs, ProgressCritic
from mmrl.methods.goals.vlac.rollout import CriticCounts, CriticSim
from tests.methods.goals.replies import ListedEnv, build_sim

NO, NONE = [0, 0, 0], [None] * 3


class Level:
    """Progress is the change of the grey level; the probability of the end is a tenth of the level."""

    def __call__(self, before, after, instructions):
        return (after - before).mean((1, 2, 3))

    def predict_done(self, images, instructions):
        return images.mean((1, 2, 3)) / 10


def test_rewards_and_ends_of_three_environments_by_hand():
    """Of decision 1 the second environment fails; the simulator ends the first. Of decision 2 the third is at .6 of
    more than .5 and truncated, which is an end; the second one, at .5, is not."""
    rows = [
        ([0, 0, 0], NO, NO, NONE),
        ([1, 2, 3], [1, 0, 0], NO, [None, "lost", None]),
        ([4, 5, 6], NO, [0, 0, 1], NONE),
        ([5, 5, 5], NO, [0, 1, 0], NONE),
        ([6, 6, 6], NO, NO, NONE),
        ([0, 0, 0], NO, NO, NONE),
        ([1, 2, 3], NO, NO, NONE),
    ]
    env = CriticSim(build_sim(ListedEnv(*rows)), Level(), 0.5, CriticCounts()).make(3)
    env.reset(seed=[0] * 3)
    played = [[column.tolist() for column in env.step(NO)[1:4]] for _ in range(4)]
    assert [rewards for rewards, _, _ in played] == [[1, 0, 3], [0, 3, 3], [0, 0, 0], [0, 0, 0]]
    assert [ends for _, ends, _ in played] == [[True, False, False], [False, False, True], NO, NO]
    assert [cuts for _, _, cuts in played] == [NO, NO, [False, True, False], NO]
    env.reset(options={"reset_mask": np.array([True, False, False])})
    assert env.step(NO)[1].tolist() == [1, 0, 0]


def test_an_environment_that_is_not_over_goes_on_through_the_reset_of_another():
    rows = [([0, 0], NO[:2], NO[:2], NONE[:2])] * 2 + [([2, 2], NO[:2], NO[:2], NONE[:2])]
    env = CriticSim(build_sim(ListedEnv(*rows)), Level(), None, CriticCounts()).make(2)
    env.reset(seed=[0, 0])
    env.reset(options={"reset_mask": np.array([True, False])})
    assert env.step([0, 0])[1].tolist() == [2, 2]


def test_counts_are_means_by_hand():
    counts = CriticCounts()
    counts.rewards, counts.ends = [1.0, 2.0], [1.0, 0.0, 0.0, 0.0]
    metrics = {"rollout/critic/ends": 4, "rollout/critic/reward": 1.5, "rollout/critic/right_ends": 0.25}
    assert counts.metrics() == metrics


def test_progress_at_the_border_of_the_dead_zone_is_none():
    critic = object.__new__(ProgressCritic)
    vars(critic).update(both_orders=False, scale=2.0, dead_zone=0.25, batch_size=2)
    critic._shares = lambda pairs, questions: np.array([0.25, -0.5])[: len(pairs)]
    pictures = np.zeros((2, 1, 1, 3), np.uint8)
    assert critic(pictures, pictures, ["go"] * 2).tolist() == pytest.approx([0, -1])


def test_a_demonstration_of_one_moment_shows_its_end():
    raws = [{"image": np.zeros((2, 2, 3), np.uint8), "proprio": np.zeros(2, np.float32), "instruction": "go"}]
    pairs = CriticPairs(done_fraction=1.0)
    assert {pairs._pair(raws, ["go"], derive_rng("test", i))[1] for i in range(20)} == {1.0}
