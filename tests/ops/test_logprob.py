"""Log-probability and entropy of stored choices, against torch.distributions and finite differences."""

import math

import pytest
import torch
from torch.distributions import Categorical
from torch.testing import assert_close

from mmrl.ops import logprob
from mmrl.ops.choice import draw
from mmrl.ops.logprob import logprob_entropy

TEMPERATURE = torch.tensor([0.5, 1.0, 2.0])


def example(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 4, 5, dtype=dtype, generator=generator)
    action = torch.randint(5, (3, 4), generator=generator)
    return logits.requires_grad_(), action


def kept_of(action):
    """The action and its right neighbour, a gap between them."""
    return torch.stack([action, torch.full_like(action, -1), (action + 1) % 5], -1)


@pytest.fixture(params=[1 << 24, 12, 3], ids=["whole", "by rows", "by choices"])
def piece(request, monkeypatch):
    monkeypatch.setattr(logprob, "SLICE", request.param)


def test_hand_computed():
    # p = (1, 3) / 4 at temperature 1; at temperature 0.5 the odds are squared: (1, 9) / 10
    logits, action = torch.tensor([[[0.0, math.log(3)]]]), torch.tensor([[1]])
    logprobs, entropy = logprob_entropy(logits, action)
    assert_close(logprobs, torch.tensor([[math.log(0.75)]]))
    assert_close(entropy, torch.tensor([[-(0.25 * math.log(0.25) + 0.75 * math.log(0.75))]]))
    assert_close(logprob_entropy(logits, action, 0.5)[0], torch.tensor([[math.log(0.9)]]))


def test_equals_torch_distributions(piece):
    logits, action = example()
    oracle = Categorical(logits=logits / TEMPERATURE[:, None, None].double())
    logprobs, entropy = logprob_entropy(logits, action, TEMPERATURE)
    assert_close(logprobs, oracle.log_prob(action))
    assert_close(entropy, oracle.entropy())
    weight = torch.arange(12.0).view(3, 4).double()
    ours = torch.autograd.grad((weight * logprobs + weight.flip(1) * entropy).sum(), logits)[0]
    theirs = torch.autograd.grad((weight * oracle.log_prob(action) + weight.flip(1) * oracle.entropy()).sum(), logits)[
        0
    ]
    assert_close(ours, theirs)


def test_gradient_by_finite_differences(piece):
    logits, action = example()
    assert torch.autograd.gradcheck(lambda x: logprob_entropy(x, action, TEMPERATURE), logits)
    assert torch.autograd.gradcheck(lambda x: logprob_entropy(x, action, TEMPERATURE, kept_of(action)), logits)


def test_kept_choices_are_renormalised():
    logits, action = example()
    kept = kept_of(action)
    inside = torch.zeros(3, 4, 5).bool().scatter(-1, kept[..., [0, 2]], True)
    oracle = Categorical(logits=torch.where(inside, logits / TEMPERATURE[:, None, None], -torch.inf))
    logprobs, entropy = logprob_entropy(logits, action, TEMPERATURE, kept)
    assert_close(logprobs, oracle.log_prob(action))
    pair = (logits / TEMPERATURE[:, None, None]).gather(-1, kept[..., [0, 2]])
    assert_close(entropy, Categorical(logits=pair).entropy())


def test_all_choices_kept_is_no_truncation():
    logits, action = example()
    everything = torch.arange(5).expand(3, 4, 5)
    for ours, whole in zip(
        logprob_entropy(logits, action, TEMPERATURE, everything), logprob_entropy(logits, action, TEMPERATURE)
    ):
        assert_close(ours, whole)


def test_unrestricted_and_impossible_choices():
    logits, action = example()
    kept = kept_of(action)
    kept[0, 0] = -1  # no truncated sampling drew it
    kept[1, 1] = torch.tensor([(action[1, 1] + 1) % 5, -1, -1])  # the action itself is cut off
    logprobs, entropy = logprob_entropy(logits, action, 1.0, kept)
    whole = logprob_entropy(logits, action)
    assert logprobs[0, 0] == whole[0][0, 0] and entropy[0, 0] == whole[1][0, 0]
    assert logprobs[1, 1] == -torch.inf and entropy[1, 1] == 0
    finite = torch.ones(3, 4).bool()
    finite[1, 1] = False
    (torch.where(finite, logprobs, 0).sum() + entropy.sum()).backward()
    assert logits.grad.isfinite().all() and (logits.grad[0, 0] != 0).all()


def test_a_forbidden_id_has_no_share(piece):
    logits = torch.tensor([[[0.0, 0.0, -torch.inf]]], requires_grad=True)
    logprobs, entropy = logprob_entropy(logits, torch.tensor([[0]]))
    assert_close(logprobs, torch.tensor([[-math.log(2)]]))
    assert_close(entropy, torch.tensor([[math.log(2)]]))
    (logprobs + entropy).sum().backward()
    assert_close(logits.grad, torch.tensor([[[0.5, -0.5, 0.0]]]))


def test_bf16_logits_are_scored_in_fp32_and_get_bf16_gradients():
    logits, action = example(torch.bfloat16)
    logprobs, entropy = logprob_entropy(logits, action, TEMPERATURE)
    assert logprobs.dtype == entropy.dtype == torch.float32
    oracle = Categorical(logits=logits.detach().float() / TEMPERATURE[:, None, None])
    assert_close(logprobs, oracle.log_prob(action))
    logprobs.sum().backward()
    assert logits.grad.dtype == torch.bfloat16


def test_strided_logits_and_wrong_shapes():
    logits, action = example()
    assert_close(logprob_entropy(logits[:, 1:], action[:, 1:])[0], logprob_entropy(logits, action)[0][:, 1:])
    with pytest.raises(ValueError, match=r"action \[N, T\]"):
        logprob_entropy(logits, action[:, 1:])


TRUNCATIONS = [{}, {"top_k": 3}, {"top_p": 0.7}, {"min_p": 0.3}, {"top_k": 4, "top_p": 0.9, "min_p": 0.1}]


@pytest.mark.parametrize("truncation", TRUNCATIONS, ids=str)
def test_what_was_drawn_is_scored_as_it_was_drawn(truncation):
    generator = torch.Generator().manual_seed(3)
    logits, uniform = torch.randn(200, 9, generator=generator), torch.rand(200, generator=generator)
    ids, drawn, kept = draw(logits, uniform, temperature=0.7, **truncation)
    scored, _ = logprob_entropy(logits[:, None], ids[:, None], 0.7, None if kept is None else kept[:, None])
    assert_close(scored[:, 0], drawn, rtol=0, atol=1e-5)
