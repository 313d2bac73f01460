"""The scale of rewards: its numbers by hand, and that it goes on after a resume."""

import math

import gymnasium
import numpy as np
import pytest

from mmrl.rollouts.env.episodic import EpisodicRollout
from mmrl.rollouts.env.fixed_horizon import FixedHorizon
from mmrl.rollouts.env.reward_scale import RewardScale
from tests.rollouts.env.test_fixed_horizon import context, valued, walk


def test_the_scale_is_that_of_the_standard_deviation_of_discounted_returns():
    scale, current = RewardScale(0.5), 0.0
    for reward in (4.0, 2.0, 0.0):  # R = 4, 4, 2: mean 10 / 3, variance 8 / 9
        current = scale.add(current, reward)
    assert current == 2.0 and scale.update() == pytest.approx(1 / math.sqrt(8 / 9), rel=1e-6)
    again = RewardScale(0.5)
    again.load_state_dict(scale.state_dict())
    for each in (scale, again):
        each.add(0.0, 10.0)  # R = 4, 4, 2, 10: mean 5, variance 9
    assert scale.update() == again.update() == pytest.approx(1 / 3, rel=1e-6)
    assert RewardScale(0.9).update() == 1.0  # nothing was noted


def test_constant_rewards_keep_their_size():
    scale = RewardScale(0.0)
    for _ in range(5):
        scale.add(0.0, 3.0)
    assert scale.update() == 1.0


def test_rewards_are_those_of_the_wrapper_of_gymnasium_up_to_its_start():
    # gymnasium's running variance begins with 1e-4 rows of variance 1; it forgets them over many rows
    rng, scale, current = np.random.default_rng(0), RewardScale(0.9), 0.0
    statistics = gymnasium.wrappers.utils.RunningMeanStd(shape=())
    for reward in rng.normal(3, 2, 500):
        current = scale.add(current, float(reward))
        statistics.update(np.array([current]))
    assert scale.update() == pytest.approx(1 / math.sqrt(float(statistics.var)), rel=1e-3)


def rewards(segments):
    return [turn.reward for segment in segments for turn in segment.turns]


def test_training_learns_from_scaled_rewards_and_reports_those_of_the_simulator():
    task, policy = walk("disabled", limit=3, bonus=True), valued([0.0] * 4)
    plain = FixedHorizon(num_envs=2, horizon=6)
    scaled = FixedHorizon(num_envs=2, horizon=6, normalize_rewards=True, reward_discount=0.0)
    first, other = rewards(plain.collect([], context(task, policy))), rewards(scaled.collect([], context(task, policy)))
    assert set(first) == {1.0, 2.0}
    # without a discount the returns are the rewards
    np.testing.assert_allclose(other, np.array(first) / np.std(first), rtol=1e-6)
    assert plain.metrics() == scaled.metrics()
    resumed = FixedHorizon(num_envs=2, horizon=6, normalize_rewards=True, reward_discount=0.0)
    resumed.load_state_dict(scaled.state_dict())
    assert rewards(resumed.collect([], context(task, policy, 1))) == rewards(
        scaled.collect([], context(task, policy, 1))
    )


def test_an_episode_that_does_not_end_is_said_and_then_refused(caplog):
    task, policy = walk("disabled", limit=400), valued([0.0] * 401)
    prompts = [(0, task[0])]
    with pytest.raises(RuntimeError, match=r"tests/Walk-v0: .*not ended after 200 .*sim\.max_episode_steps"):
        EpisodicRollout(max_decisions=200).collect(prompts, context(task, policy, purpose="eval"))
    assert "tests/Walk-v0: 1 episodes have not ended after 20 decisions" in caplog.text
    assert (
        len(EpisodicRollout(max_decisions=401).collect(prompts, context(task, policy, purpose="eval"))[0].turns) == 400
    )
