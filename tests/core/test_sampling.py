"""Annealing of the temperature over a completion, by hand and in what is drawn."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.annotators.importance import TruncatedImportanceSampling
from mmrl.core.batch import Batch
from mmrl.core.rng import Noise
from mmrl.core.types import Context, Sampling
from mmrl.policies.no_policy import NoPolicy
from mmrl.policies.text.policy import TextPolicy

CONFIG = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
          "num_key_value_heads": 2, "initializer_range": 0.5}  # fmt: skip


def test_the_temperature_by_hand():
    # d = 100: 2.2 - e^.1 = 1.094829, 2.2 - e^.5 = .551279, 2.2 - e^.7 = .186247, from t = 75 the lower bound
    sampling = Sampling(annealing={"max_temperature": 1.2, "min_temperature": 0.1, "cutoff": 10, "decay": 100})
    found = torch.tensor([sampling.temperature_at(t) for t in (0, 9, 10, 50, 70, 75, 100_000)])
    assert_close(found, torch.tensor([1, 1, 1.094829, 0.551279, 0.186247, 0.1, 0.1]), atol=1e-6, rtol=0)
    assert Sampling(temperature=0.7).temperature_at(50) == 0.7
    assert Sampling(temperature=0.5, annealing=sampling.annealing).temperature_at(9) == 0.5


def test_importance_weights_correct_for_it_by_hand():
    # [.7, .2, .1] at temperature .5: [.49, .04, .01] / .54; ratios .771429 and 5.4, which is cut at 2
    p = torch.tensor([0.7, 0.2, 0.1])
    cold = p.square() / p.square().sum()
    assert_close(cold, torch.tensor([0.907407, 0.074074, 0.018519]), atol=1e-6, rtol=0)
    one = {"action_mask": torch.ones(2, 1).bool(), "is_demo": torch.zeros(2).bool()}
    rows = Batch(**one, behavior_logprobs=cold[[0, 2], None].log(), old_logprobs=p[[0, 2], None].log())
    ctx = Context(None, None, None, Sampling(), seed=0, iteration=0)
    weights = TruncatedImportanceSampling(2.0)(rows, ctx)["importance_weights"]
    assert_close(weights, torch.tensor([[0.771429], [2.0]]), atol=1e-6, rtol=0)


def test_each_token_is_drawn_at_the_temperature_of_its_position():
    torch.manual_seed(0)
    policy = TextPolicy(config=dict(CONFIG)).eval()
    observation = policy.collate([policy.encode({"messages": ({"role": "user", "content": "count"},)})])
    owner = torch.zeros(8, dtype=torch.long)
    annealed = Sampling(max_tokens=6, annealing={"cutoff": 2, "decay": 5.0})
    noise = Noise(list(range(8)))
    action = policy.act_groups(observation, owner, annealed, noise)
    columns = {f"obs.{name}": column[owner] for name, column in observation.items()}
    mask = action.action_mask
    for t in range(mask.shape[1]):
        # the learner, asked at the temperature of this position
        batch = Batch(
            **columns, action=action.action, action_mask=mask, prompt_id=owner,
            temperature=torch.full((8,), annealed.temperature_at(t)),
        )  # fmt: skip
        scored = policy(batch).logprobs.detach()
        assert_close(action.behavior_logprobs[:, t][mask[:, t]], scored[:, t][mask[:, t]], atol=1e-4, rtol=0)
    plain = policy.act_groups(observation, owner, Sampling(max_tokens=6), Noise(list(range(8))))
    assert torch.equal(plain.action[:, :2], action.action[:, :2])  # until the cutoff nothing changes
    greedy = Sampling(max_tokens=6, decode="argmax")
    cold = policy.act_groups(observation, owner, Sampling(max_tokens=6, decode="argmax", annealing={}), noise)
    assert torch.equal(cold.action, policy.act_groups(observation, owner, greedy, noise).action)


def test_refusals():
    for wrong in ({"cutoff": -1}, {"decay": 0.0}, {"min_temperature": 0.0}, {"max_temperature": 0.05}):
        with pytest.raises(ValueError, match=r"sampling\.annealing"):
            Sampling(annealing=wrong)
    with pytest.raises(ValueError, match=r"sampling\.annealing is for the tokens of text"):
        NoPolicy().check_sampling(Sampling(annealing={}))
