"""Priors over skills: the behaviour policy by hand, the floor, planted errors, and a language model's scores."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModelForCausalLM

from mmrl.core.batch import Batch
from mmrl.core.rng import Noise
from mmrl.core.types import Sampling
from mmrl.methods.exploration.llm_augmented_hierarchy.policy import SkillPolicy
from mmrl.methods.exploration.llm_augmented_hierarchy.priors import (
    CachedPrior,
    ModelPrior,
    ScriptedPrior,
    floor_prior,
)
from tests.checkpoints import qwen2

PI, PRIOR = [0.2, 0.5, 0.3], [0.7, 0.2, 0.1]
SKILLS = ["collect wood", "make plank", "make table"]


def constant_policy():
    """A policy that chooses among three skills by PI in every state."""
    policy = SkillPolicy(observation_dims=2, actions=3, hidden=[4])
    policy.head.linear.weight.data.zero_()
    policy.head.linear.bias.data = torch.tensor(PI).log()
    return policy.eval()


def observe(weight, rows=4000, prior=PRIOR):
    return {
        "state": torch.zeros(rows, 2),
        "prior": torch.tensor(prior).log().repeat(rows, 1),
        "prior_weight": torch.full((rows,), weight),
    }


@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        (1.0, [0.518519, 0.370370, 0.111111]),
        (0.5, [0.344441, 0.460279, 0.195280]),
        (0.0, PI),
    ],
)
def test_the_behaviour_is_the_policy_times_a_power_of_the_prior(weight, expected):
    """Weight 1: .14, .10, .03 of .27. Weight 1/2: roots of the prior .836660, .447214, .316228; products .167332,
    .223607, .094868 of .485807. The learner scores the same distribution, and the policy alone without a prior."""
    policy, observation = constant_policy(), observe(weight)
    acted = policy.act(observation, Sampling(), Noise(range(4000)))
    behaviour = {int(k): float(lp.exp()) for k, lp in zip(acted.action[:, 0], acted.behavior_logprobs[:, 0])}
    assert [behaviour[k] for k in range(3)] == pytest.approx(expected, abs=1e-6)
    shares = torch.bincount(acted.action[:, 0], minlength=3) / 4000
    assert shares.tolist() == pytest.approx(expected, abs=0.025)  # three standard deviations
    columns = {f"obs.{name}": column[:3] for name, column in observation.items()}
    batch = Batch(columns, action=torch.arange(3)[:, None], temperature=torch.ones(3))
    assert policy(batch).logprobs[:, 0].exp().tolist() == pytest.approx(expected, abs=1e-6)
    plain = Batch({name: column for name, column in batch.items() if name != "obs.prior"})
    assert policy(plain).logprobs[:, 0].exp().tolist() == pytest.approx(PI, abs=1e-6)


def test_without_a_prior_the_policy_is_a_plain_one():
    policy = constant_policy()
    plain = policy.act({"state": torch.zeros(50, 2)}, Sampling(), Noise(range(50)))
    unweighted = policy.act(observe(0.0, 50), Sampling(), Noise(range(50)))
    assert torch.equal(plain.action, unweighted.action)
    assert torch.equal(plain.behavior_logprobs, unweighted.behavior_logprobs)
    greedy = policy.act({"state": torch.zeros(1, 2)}, Sampling(decode="argmax"), Noise([0]))
    assert greedy.output == [1]  # the prior favours skill 0


def test_an_excluded_skill_can_be_explored():
    """max(p, .01) of [.9, .1, 0] sums to 1.01: .891089, .099010, .009901."""
    assert floor_prior(np.array([0.9, 0.1, 0.0]), 0.01) == pytest.approx([0.891089, 0.099010, 0.009901], abs=1e-6)
    assert floor_prior(np.array([0.0, 0.0, 1.0]), 1.0) == pytest.approx([1 / 3] * 3)


def test_a_script_is_wrong_about_some_states_and_always_the_same():
    script, count = ScriptedPrior(0.2, 0.6), 2000
    ratings = np.stack([script.rate(f"state {i}", SKILLS, i % 3) for i in range(count)])
    assert ratings.sum(1) == pytest.approx(np.ones(count)) and set(np.round(ratings, 9).ravel()) == {0.6, 0.2}
    favourite = ratings.argmax(1)
    wrong = (favourite != np.arange(count) % 3).mean()
    assert wrong == pytest.approx(0.2, abs=0.03)  # three standard deviations are .027
    assert (script.rate("state 7", SKILLS, 1) == ratings[7]).all()
    others = (favourite - np.arange(count)) % 3
    assert np.bincount(others, minlength=3)[1:].min() > 150  # each other skill about 200 times
    assert ScriptedPrior(0.0).rate("any", SKILLS, 2).argmax() == 2
    assert ScriptedPrior(1.0).rate("any", SKILLS, 2).argmax() != 2
    assert ScriptedPrior(1.0).rate("any", ["wait"], 0).tolist() == [1.0]


class CountingPrior:
    """Counts how often it is asked."""

    def __init__(self, answer):
        self.answer, self.asked = answer, 0

    def rate(self, state, skills, expert):
        self.asked += 1
        return np.array(self.answer)


def test_a_state_is_asked_about_once_and_what_is_no_distribution_is_refused():
    prior = CountingPrior([0.7, 0.2, 0.1])
    cached = CachedPrior(prior, 0.01, 1.0)
    for state in ("a", "b", "a", "a"):
        assert cached(state, SKILLS, 0) == pytest.approx(np.log([0.7, 0.2, 0.1]))
    assert prior.asked == 2
    assert not CachedPrior(None, 0.01, 0.0)("a", SKILLS, 0).any()
    for answer in ([0.5, 0.5], [0.5, 0.6, -0.1], [0.5, 0.5, 0.5], [np.nan, 0.5, 0.5]):
        with pytest.raises(ValueError, match=r"rollout\.prior gave .* one probability for each"):
            CachedPrior(CountingPrior(answer), 0.01, 1.0)("a", SKILLS, 0)
    for options, key in (((0.0, 1.0), "epsilon"), ((0.01, 1.5), "weight")):
        with pytest.raises(ValueError, match=f"rollout.{key} must be in"):
            CachedPrior(None, *options)
    for options in ({"wrong": 1.1}, {"confidence": -0.1}):
        with pytest.raises(ValueError, match=f"rollout.prior.{next(iter(options))} must be in"):
            ScriptedPrior(**options)
    with pytest.raises(ValueError, match=r"rollout\.prior\.question must have \{state\}"):
        ModelPrior("any", question="What next?")


@pytest.mark.parametrize(("temperature", "reduction"), [(1.0, "mean"), (2.0, "sum")])
def test_a_language_model_scores_the_names_of_the_skills(tmp_path, temperature, reduction):
    """Against transformers alone: one pass for each name, and the log-probabilities of its tokens."""
    path = str(qwen2(tmp_path / "model"))
    prior = ModelPrior(path, "Next? {state}", temperature, reduction=reduction, dtype="float32")
    rated = prior.rate("You hold nothing.", SKILLS, 0)
    assert rated.sum() == pytest.approx(1)
    scorer, model = prior._scorer, AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    tokenizer = scorer.language_model.tokenizer
    messages = ({"role": "user", "content": "Next? You hold nothing."},)
    prompt = scorer.language_model.encode({"messages": messages})["input_ids"].tolist()
    scores = []
    for skill in SKILLS:
        ids = tokenizer(skill, add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            logprobs = model(torch.tensor([[*prompt, *ids]])).logits[0].log_softmax(-1)
        tokens = torch.stack([logprobs[len(prompt) - 1 + place, token] for place, token in enumerate(ids)])
        scores.append(tokens.mean() if reduction == "mean" else tokens.sum())
    expected = (torch.stack(scores).double() / temperature).softmax(0)
    assert_close(torch.from_numpy(rated), expected, atol=1e-5, rtol=1e-4)
    assert expected.max() - expected.min() > 1e-3
