"""The gain of a thought by hand, its advantages, and which model scores what."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.types import Context, Episode, Sampling, Turn
from mmrl.methods.rewards.rlp import InformationGain, information_gain
from mmrl.ops.advantage import group_advantage
from mmrl.policies.text.policy import TextPolicy
from mmrl.transforms.answer_splice import Splice, answer_probabilities
from tasks.arithmetic import Arithmetic
from tests.policies.text.oracle import TINY, completions, decided

TASK = Arithmetic()


def test_hand_computed():
    # .2 after the thought and .1 without: log 2; .3 and .3: 0
    assert information_gain(torch.tensor([0.2]), torch.tensor([0.1])) == pytest.approx(0.693147, abs=1e-6)
    assert information_gain(torch.tensor([0.3]), torch.tensor([0.3])) == 0
    two = torch.tensor([0.2, 0.4]), torch.tensor([0.1, 0.8])
    assert information_gain(*two) == pytest.approx(0.693147, abs=1e-6)  # the first token alone
    assert information_gain(*two, tokens=2) == pytest.approx(0, abs=1e-6)
    assert abs(information_gain(torch.tensor([0.0]), torch.tensor([0.5]))) < 100  # finite


@pytest.mark.parametrize(
    "rewards, expected",
    [
        ([0.69, 0.1, -0.2, 0.05], [0.706667, -0.08, -0.48, -0.146667]),
        ([-0.8, -0.6, -0.5, -0.3], [-0.333333, -0.066667, 0.066667, 0.333333]),  # all thoughts do harm
        ([0.4, 0.4, 0.4, 0.4], [0.0, 0.0, 0.0, 0.0]),
    ],
)
def test_the_advantages_of_the_recipe(rewards, expected):
    """G / (G - 1) (r - mean), the difference to the mean of the others."""
    found = group_advantage(torch.tensor(rewards), torch.zeros(4), "leave_one_out", None, 1e-4)
    assert_close(found, torch.tensor(expected), rtol=0, atol=1e-5)


def test_the_policy_thinks_and_the_slow_copy_does_not():
    torch.manual_seed(0)
    policy, slow = (decided(TextPolicy(config=TINY)).eval() for _ in range(2))
    ctx = Context(TASK, None, policy, Sampling(), seed=0, iteration=0, models={"reference": slow})
    done = completions(policy, [TASK[0], TASK[0], TASK[1]], Sampling(max_tokens=3))
    thoughts = [replace(c, output=text) for c, text in zip(done, ("1", "12", "?"))]
    groups = [(0, 0), (0, 1), (1, 0)]
    episodes = [Episode(TASK[g], g, k, [Turn(thought)]) for (g, k), thought in zip(groups, thoughts)]
    result = InformationGain(separator="\n")(episodes, ctx)
    for episode in result:
        prompt, answer = episode.prompt, str(episode.prompt.answer)
        with_thought = answer_probabilities([Splice(prompt, f"{episode.output}\n", answer)], ctx)[0][0]
        without = answer_probabilities([Splice(prompt, "", answer)], replace(ctx, policy=slow))[0][0]
        assert episode.reward == pytest.approx(float(with_thought.log() - without.log()), abs=1e-4)
        assert episode.scores["information_gain"] == episode.reward
    with pytest.raises(ValueError, match="the learner has no model 'reference'"):
        InformationGain()(episodes, replace(ctx, models={}))
    with pytest.raises(ValueError, match="tokens must be at least 1"):
        InformationGain(tokens=0)


def test_gains_of_several_tokens_add_up_and_a_probability_of_0_counts_as_1e_30():
    # log .8 / .4 + log .5 / .25 = 2 log 2 = 1.386294; log .8 / .4 alone .693147; log 1e30 = 69.077553
    thought, baseline = torch.tensor([0.8, 0.5, 0.1]), torch.tensor([0.4, 0.25, 0.9])
    assert information_gain(thought, baseline, 2) == pytest.approx(1.386294, abs=1e-6)
    assert information_gain(thought, baseline) == pytest.approx(0.693147, abs=1e-6)
    zero, one = torch.zeros(1), torch.ones(1)
    assert information_gain(one, zero) == pytest.approx(69.077553, abs=1e-4)
    assert information_gain(zero, one) == pytest.approx(-69.077553, abs=1e-4)
