"""Control policies: what was sampled is scored again by the same distribution."""

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces

from mmrl.core.batch import Batch
from mmrl.core.rng import Noise
from mmrl.core.types import Episode, Prompt, Request, Sampling, Turn
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.policies.control.heads import Categorical, CategoricalHead, Gaussian, GaussianHead
from mmrl.policies.control.policy import ControlPolicy

P = torch.tensor([[0.5, 0.3, 0.15, 0.05]])


def make(kind: str, **options) -> ControlPolicy:
    torch.manual_seed(0)
    policy = ControlPolicy(3, 4 if kind == "categorical" else 2, kind=kind, **options)
    with torch.no_grad():  # away from the nearly uniform start
        for parameter in policy.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return policy


def played(policy: ControlPolicy, sampling: Sampling, rows: int = 64) -> Batch:
    engine = LocalEngine()
    engine.sync(policy, 0)
    states = np.random.default_rng(1).normal(size=(rows, 3)).astype(np.float32)
    completions = engine.sample([Request({"state": state}, seed) for seed, state in enumerate(states)], sampling)
    return collate([Episode(Prompt("p"), 0, 0, turns=[Turn(c) for c in completions])], policy)


@pytest.mark.parametrize(
    "kind, sampling",
    [
        ("categorical", Sampling()),
        ("categorical", Sampling(temperature=0.7)),
        ("categorical", Sampling(temperature=1.5, top_p=0.6)),
        ("categorical", Sampling(top_k=2)),
        ("categorical", Sampling(min_p=0.3)),
        ("gaussian", Sampling()),
        ("gaussian", Sampling(temperature=0.5)),
        ("gaussian", Sampling(decode="mean")),
    ],
)
def test_forward_gives_the_logprobs_and_values_of_act(kind, sampling):
    policy = make(kind)
    batch = played(policy, sampling)
    out = policy(batch)
    assert batch["action"].shape == ((64, 1) if kind == "categorical" else (64, 1, 2))
    assert out.logprobs.shape == out.entropy.shape == batch["action_mask"].shape == (64, 1)
    torch.testing.assert_close(out.logprobs, batch["behavior_logprobs"], atol=1e-5, rtol=0)
    torch.testing.assert_close(out.values, batch["values"], atol=1e-5, rtol=0)
    assert out.values.shape == (64,)
    out.logprobs.sum().backward()
    assert all(p.grad.isfinite().all() for p in policy.actor.parameters())


def test_state_dependent_std_is_scored_as_it_was_sampled():
    policy = make("gaussian", state_dependent_std=True, log_std=-0.5)
    batch = played(policy, Sampling())
    torch.testing.assert_close(policy(batch).logprobs, batch["behavior_logprobs"], atol=1e-5, rtol=0)


def test_categorical_sample_is_the_inverse_cdf():
    seeds = list(range(4000))
    drawn = Categorical(P.log().expand(4000, 4)).sample(Noise(seeds))[:, 0]
    level = Noise(seeds).uniform()
    assert drawn.tolist() == np.searchsorted([0.5, 0.8, 0.95], level.numpy()).tolist()
    share = drawn.bincount(minlength=4) / 4000
    # four standard errors of the largest share: 4 * sqrt(0.25 / 4000) = 0.032
    assert (share - P[0]).abs().max() < 0.032


def test_an_action_without_probability_is_never_drawn():
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf]]).expand(500, 3)
    assert Categorical(logits).sample(Noise(range(500))).eq(1).all()
    assert Categorical(logits).entropy().eq(0).all()


def test_categorical_numbers():
    head = Categorical(P.log() / 2)  # temperature 2: p proportional to sqrt(p)
    root = P.sqrt() / P.sqrt().sum()
    torch.testing.assert_close(head.logprobs(torch.tensor([[2]])), root.log()[:, 2:3])
    torch.testing.assert_close(head.entropy(), -(root * root.log()).sum(1, keepdim=True))
    assert head.mode().tolist() == [[0]]


@pytest.mark.parametrize(
    "cut, kept, p",
    [
        ({"top_p": 0.55}, [0, 1, -1, -1], [0.625, 0.375, 0, 0]),  # 0.5 < 0.55 <= 0.8
        ({"top_k": 3}, [0, 1, 2], [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0]),
        ({"top_k": 2, "top_p": 0.6}, [0, -1], [1, 0, 0, 0]),  # after top_k the masses are 0.625 and 0.375
        ({"top_p": 1e-6}, [0, -1, -1, -1], [1, 0, 0, 0]),  # the most likely is always kept
        ({"min_p": 0.4}, [0, 1, -1, -1], [0.625, 0.375, 0, 0]),  # 0.3 >= 0.4 * 0.5 > 0.15
        ({"min_p": 1.0}, [0, -1, -1, -1], [1, 0, 0, 0]),
    ],
)
def test_truncation_keeps_the_most_likely_and_renormalises(cut, kept, p):
    head = Categorical(P.log()).truncate(Sampling(**cut))
    assert head.support_ids.tolist() == [[kept]]
    torch.testing.assert_close(head.logits.softmax(1), torch.tensor([p], dtype=torch.float32))
    again = Categorical(P.log()).restrict(head.support_ids)
    assert torch.equal(again.logits, head.logits)


def test_gaussian_numbers_against_torch():
    torch.manual_seed(0)
    loc, log_std, action = torch.randn(5, 3), torch.randn(5, 3), torch.randn(5, 1, 3)
    oracle = torch.distributions.Normal(loc, log_std.exp())
    head = Gaussian(loc, log_std)
    torch.testing.assert_close(head.logprobs(action)[:, 0], oracle.log_prob(action[:, 0]).sum(1))
    torch.testing.assert_close(head.entropy()[:, 0], oracle.entropy().sum(1))
    # one standard dimension: half of log(2 pi e)
    assert Gaussian(torch.zeros(1, 1), torch.zeros(1, 1)).entropy().item() == pytest.approx(1.4189385)


def test_temperature_divides_logits_and_multiplies_the_std():
    torch.manual_seed(0)
    features, temperature = torch.randn(2, 4), torch.tensor([1.0, 2.0])
    logits = CategoricalHead(4, 3)
    plain = logits(features, torch.ones(2)).logits
    torch.testing.assert_close(logits(features, temperature).logits, plain / temperature[:, None])
    gaussian = GaussianHead(4, 3, log_std=0.5)
    torch.testing.assert_close(gaussian(features, temperature).log_std.exp()[:, 0], math.exp(0.5) * temperature)


def test_a_row_draws_the_same_whatever_is_beside_it():
    policy = make("gaussian")
    states, ones = torch.randn(6, 3), Sampling()
    together = policy.act({"state": states}, ones, Noise(range(6))).action
    alone = [policy.act({"state": states[i : i + 1]}, ones, Noise([i])).action for i in range(6)]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-6, rtol=0)


def test_only_the_simulator_sees_the_bounds():
    policy = make("gaussian", low=[-0.1, -1.0], high=0.1, log_std=1.0)
    action = policy.act({"state": torch.randn(50, 3)}, Sampling(), Noise(range(50)))
    assert action.action.abs().max() > 1
    expected = action.action[:, 0].clamp(torch.tensor([-0.1, -1.0]), torch.tensor([0.1, 0.1]))
    assert np.array_equal(np.stack(action.output), expected.numpy())


def test_decodes():
    policy, state = make("categorical"), {"state": torch.randn(20, 3)}
    best = policy.act(state, Sampling(decode="argmax"), Noise(range(20)))
    logits = policy.head.linear(policy.actor(state["state"]))
    assert best.output == logits.argmax(1).tolist()
    with pytest.raises(ValueError, match="decode=mean needs ordered choices"):
        policy.act(state, Sampling(decode="mean"), Noise(range(20)))
    with pytest.raises(ValueError, match=r"Gaussian.*top_p=0.9"):
        make("gaussian").act(state, Sampling(top_p=0.9), Noise(range(20)))


def test_weights_start_orthogonal():
    policy = ControlPolicy(5, 4, hidden=[16, 8])
    for layer, gain in ((policy.actor[2], 2), (policy.head.linear, 1e-4), (policy.value_net, 1)):
        torch.testing.assert_close(
            layer.weight @ layer.weight.T, gain * torch.eye(len(layer.weight)), atol=1e-5, rtol=0
        )
        assert layer.bias.eq(0).all()


@pytest.mark.parametrize("kind", ["categorical", "gaussian"])
def test_a_saved_policy_is_the_same_policy(kind, tmp_path):
    policy = make(kind, hidden=[7], activation="relu", **({"high": 2.0} if kind == "gaussian" else {}))
    policy.save_pretrained(tmp_path / "export")
    again = ControlPolicy(path=str(tmp_path / "export"))
    assert again.config == policy.config
    batch = played(policy, Sampling())
    assert torch.equal(again(batch).logprobs, policy(batch).logprobs)
    assert torch.equal(again(batch).values, policy(batch).values)
    assert torch.equal(again.high, policy.high)
    with pytest.raises(ValueError, match=r"saved with \{'observation_dims': 3\}.*'observation_dims': 5"):
        ControlPolicy(observation_dims=5, path=str(tmp_path / "export"))


def test_refusals(tmp_path):
    with pytest.raises(ValueError, match=r"config\.json is missing"):
        ControlPolicy(path=str(tmp_path))
    with pytest.raises(ValueError, match=r"policy\.observation_dims and policy\.actions"):
        ControlPolicy(actions=2)
    with pytest.raises(ValueError, match=r"policy\.activation must be one of"):
        ControlPolicy(3, 2, activation="nonsense")
    policy = make("categorical")
    with pytest.raises(ValueError, match=r"needs observation \['state'\]"):
        policy.encode({"image": 0})
    with pytest.raises(ValueError, match=r"observation_dims=3.*\(4,\)"):
        policy.encode({"state": np.zeros(4)})


def test_a_simulator_that_does_not_fit_is_refused_with_both_named():
    state = spaces.Box(-1, 1, (3,))
    four, policy, reals = spaces.Discrete(4), make("categorical"), make("gaussian")
    policy.check_spaces(state, four)
    policy.check_spaces(spaces.Dict({"state": state}), four)
    reals.check_spaces(state, spaces.Box(-1, 1, (2,)))
    for refused, observation, action, words in (
        (policy, spaces.Box(-1, 1, (5,)), four, r"observation_dims=3.*Box.*\(5,\)"),
        (policy, state, spaces.Discrete(3), r"4 numbered actions.*Discrete\(3\)"),
        (policy, state, spaces.Discrete(4, start=1), r"4 numbered actions.*start=1"),
        (policy, state, spaces.Box(-1, 1, (2,)), r"4 numbered actions.*Box"),
        (reals, state, four, r"2 reals.*Discrete\(4\)"),
        (reals, state, spaces.Box(-1, 1, (6,)), r"2 reals.*Box.*\(6,\)"),
        (reals, state, spaces.Box(-2, 2, (2,)), r"\[-1.0, -1.0\].*Box\(-2.0, 2.0"),
    ):
        with pytest.raises(ValueError, match=words):
            refused.check_spaces(observation, action)
