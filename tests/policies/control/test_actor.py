"""Actors in a box, and their critics."""

import math

import gymnasium
import numpy as np
import pytest
import torch
from torch.distributions import Independent, Normal, TransformedDistribution
from torch.distributions.transforms import TanhTransform
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.rng import Noise
from mmrl.core.types import Sampling
from mmrl.policies.control.actor import DeterministicPolicy, Squashed, SquashedPolicy
from mmrl.policies.control.critic import Critics
from mmrl.policies.control.uniform import UniformPolicy

KINDS = [SquashedPolicy, DeterministicPolicy]


def states(n: int) -> dict[str, torch.Tensor]:
    return {"state": torch.randn(n, 3, generator=torch.Generator().manual_seed(0))}


def build_policy(kind, **options):
    torch.manual_seed(0)
    return kind(observation_dims=3, actions=2, low=[-2.0, 0.0], high=[2.0, 1.0], hidden=[8], **options)


def test_squashed_log_probability_is_that_of_the_transformed_distribution():
    generator = torch.Generator().manual_seed(0)
    loc, log_std = torch.randn(2, 50, 3, dtype=torch.float64, generator=generator)
    unbounded = loc + log_std.exp() * torch.randn(50, 3, dtype=torch.float64, generator=generator)
    base = Independent(Normal(loc, log_std.exp()), 1)
    oracle = TransformedDistribution(base, TanhTransform(cache_size=1))
    action = oracle.transforms[0](unbounded)  # the cache lets it score without inverting
    assert_close(Squashed(loc, log_std).logprobs(unbounded[:, None])[:, 0], oracle.log_prob(action))


def test_squashed_log_probability_far_out_is_finite_and_exact():
    # log(1 - tanh(u)^2) -> 2 log 2 - 2 |u|: at u = 40 naive code takes the log of 0
    choices = Squashed(torch.tensor([[40.0, -40.0]]), torch.zeros(1, 2))
    expected = 2 * (-0.5 * math.log(2 * math.pi) - (2 * math.log(2) - 80))
    assert_close(choices.logprobs(torch.tensor([[[40.0, -40.0]]])), torch.tensor([[expected]]))


def test_a_reparameterised_sample_has_its_own_log_probability():
    policy = build_policy(SquashedPolicy)
    noise = torch.randn(6, 2, generator=torch.Generator().manual_seed(1))
    features = policy.features(states(6))
    sample = policy.rsample(features, noise)
    choices = policy.head(policy.actor(features))
    unbounded = choices.loc + choices.log_std.exp() * noise
    assert_close(sample.action, unbounded.tanh())
    assert_close(sample.logprobs, choices.logprobs(unbounded[:, None]))


@pytest.mark.parametrize("kind", KINDS)
def test_forward_scores_as_act_did(kind):
    policy, observation = build_policy(kind), states(64)
    done = policy.act(observation, Sampling(temperature=1.5), Noise(range(64)))
    batch = Batch(**{"obs.state": observation["state"]}, action=done.action, temperature=torch.full((64,), 1.5))
    assert_close(policy(batch).logprobs, done.behavior_logprobs, rtol=0, atol=1e-4)
    given = np.stack(done.output)
    assert (given >= [-2, 0]).all() and (given <= [2, 1]).all()
    assert_close((policy.to_action(done.action[:, 0]) * torch.tensor([2, 0.5]) + torch.tensor([0, 0.5])).numpy(), given)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_draws_from_its_own_stream_and_greedy_from_none(kind):
    policy, observation = build_policy(kind), states(4)
    one = policy.act(observation, Sampling(), Noise([5, 6, 7, 8])).action
    part = policy.act({"state": observation["state"][2:]}, Sampling(), Noise([7, 8])).action
    assert_close(one[2:], part)
    greedy = [policy.act(observation, Sampling(decode="argmax"), Noise(range(s, s + 4))).action for s in (0, 9)]
    assert torch.equal(*greedy)


def test_a_policy_that_has_not_learned_is_uniform_in_the_box():
    policy = UniformPolicy(build_policy(SquashedPolicy))
    done = policy.act(states(4000), Sampling(), Noise(range(4000)))
    given = np.stack(done.output)
    for axis, (low, high) in enumerate(((-2, 2), (0, 1))):
        share = (given[:, axis] - low) / (high - low)
        assert abs(share.mean() - 0.5) < 4 / math.sqrt(12 * 4000)
        assert abs((share < 0.1).mean() - 0.1) < 4 * math.sqrt(0.09 / 4000)
    assert_close(done.behavior_logprobs, torch.full((4000, 1), -2 * math.log(2)))


@pytest.mark.parametrize("kind", KINDS)
def test_an_action_becomes_a_choice_and_back(kind):
    policy = build_policy(kind)
    for action in ([-2.0, 0.0], [1.0, 0.9], [2.0, 1.0]):
        choice = policy.encode_demonstration({}, np.array(action))
        (back,) = policy._build_action(choice[None], torch.zeros(1, 1)).output
        assert_close(torch.from_numpy(back), torch.tensor(action), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded_it_acts_the_same(kind, tmp_path):
    options = {} if kind is SquashedPolicy else {"exploration_noise": 0.3}
    policy = build_policy(kind, image_size=17, image_features=4, **options)
    policy.save_pretrained(tmp_path)
    image = torch.randint(256, (5, 17, 17, 3), dtype=torch.uint8)
    observation = {**states(5), "image": image}
    again = kind(path=str(tmp_path))
    one, other = (p.act(observation, Sampling(), Noise(range(5))) for p in (policy, again))
    assert torch.equal(one.action, other.action) and np.array_equal(one.output, other.output)
    with pytest.raises(ValueError, match=r"was saved with \{'actions': 2\}"):
        kind(actions=3, path=str(tmp_path))


def test_what_does_not_fit_is_refused():
    policy = build_policy(SquashedPolicy)
    box = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    with pytest.raises(ValueError, match=r"policy\.low and policy\.high"):
        policy.check_spaces(box, gymnasium.spaces.Box(-1, 1, (2,), np.float32))
    with pytest.raises(ValueError, match="observation 'state'"):
        policy.check_spaces(gymnasium.spaces.Box(-1, 1, (4,), np.float32), box)
    with pytest.raises(ValueError, match=r"policy\.low must be finite"):
        SquashedPolicy(observation_dims=3, actions=2, low=-math.inf)
    with pytest.raises(ValueError, match="no observation to read"):
        SquashedPolicy(actions=2)
    with pytest.raises(ValueError, match=r"policy\.observation_dims"):
        policy.encode({"state": np.zeros(4)})


def test_critics_are_independent_multilayer_perceptrons():
    torch.manual_seed(0)
    critics = Critics(3, 2, hidden=[8, 5], count=3)
    features, action = torch.randn(7, 3), torch.randn(7, 2)
    q = critics(features, action)
    assert q.shape == (7, 1, 3)
    for k in range(3):
        x = torch.cat((features, action), dim=1)
        for i, (weight, bias) in enumerate(zip(critics.weights, critics.biases)):
            x = x @ weight[k] + bias[k]
            x = x if i == 2 else x.relu()
        assert_close(q[..., k], x)
    for weight in critics.weights:  # as torch.nn.Linear starts
        assert weight.abs().max() <= 1 / math.sqrt(weight.shape[1])
        assert weight.abs().max() > 0.8 / math.sqrt(weight.shape[1])
