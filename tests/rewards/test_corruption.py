"""Corrupted rewards: shares of flipped and random ones, which answers are alike and which rewards are not."""

import pytest

from mmrl.core.types import Prompt
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.corruption import Corruption
from mmrl.rewards.schedule import ScheduledReward, WeightSchedule
from mmrl.rollouts.text.scripted import scripted_episode

TRUE = WeightedSum({"exact": 1.0})


def answers(count, exact):
    episodes = [scripted_episode(Prompt(f"toy/train/{i}"), f"answer {i}") for i in range(count)]
    for episode in episodes:
        episode.scores = {"exact": exact}
    return episodes


def test_weights_of_the_reward_inside_follow_their_schedule():
    inner = ScheduledReward(WeightedSum({"exact": 1.0}), {"exact": WeightSchedule(1.0, 0.0, 100)})
    for iteration in (0, 50, 100):
        assert Corruption(inner).at(iteration)(answers(5, 1.0)) == pytest.approx([1 - iteration / 100] * 5)


def test_without_probabilities_the_reward_stays():
    assert Corruption(TRUE)(answers(50, 1.0)) == [1.0] * 50


def test_every_reward_is_mirrored_with_probability_one():
    assert Corruption(TRUE, flip=1.0)(answers(50, 1.0)) == [0.0] * 50
    assert Corruption(TRUE, flip=1.0, low=-1.0)(answers(50, 0.0)) == [0.0] * 50


@pytest.mark.parametrize(
    ("arguments", "share"), [({"flip": 0.2}, 0.8), ({"random": 0.5}, 0.75), ({"random": 1.0}, 0.5)]
)
def test_shares_are_within_four_standard_errors(arguments, share):
    rewards = Corruption(TRUE, **arguments)(answers(4000, 1.0))
    assert set(rewards) == {0.0, 1.0}
    assert abs(sum(rewards) / 4000 - share) < 4 * (share * (1 - share) / 4000) ** 0.5


def test_the_draws_depend_on_the_seed_and_not_on_the_other_episodes():
    reward, episodes = Corruption(TRUE, random=1.0), answers(200, 1.0)
    assert reward(episodes) == [reward([episode])[0] for episode in episodes]
    assert reward(episodes) != Corruption(TRUE, random=1.0, seed=1)(episodes)


def test_equal_answers_are_mirrored_alike_and_earn_random_rewards_apart():
    group = [scripted_episode(Prompt("toy/train/0"), f"answer {i % 2}") for i in range(800)]
    for i, episode in enumerate(group):
        episode.sample_index, episode.scores = i, {"exact": 1.0}
    mirrored = {tuple(Corruption(TRUE, flip=0.5, seed=seed)(group)[i::2]) for seed in range(8) for i in (0, 1)}
    assert mirrored == {(0.0,) * 400, (1.0,) * 400}
    drawn = Corruption(TRUE, random=1.0)(group)
    for each in (drawn[0::2], drawn[1::2]):  # neither answer is worth more: 1/2 within four standard errors
        assert abs(sum(each) / 400 - 0.5) < 4 * 0.025


@pytest.mark.parametrize("arguments", [{"flip": -0.1}, {"flip": 0.7, "random": 0.4}])
def test_probabilities_are_checked(arguments):
    with pytest.raises(ValueError, match="probabilities with a sum of at most 1"):
        Corruption(TRUE, **arguments)
