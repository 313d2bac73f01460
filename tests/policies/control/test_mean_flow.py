"""The mean-flow actor: its derivative against torch.func, one step by hand, decoding and saving."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.rng import Noise
from mmrl.core.types import Sampling
from mmrl.policies.control.mean_flow import MeanFlowHead, MeanFlowPolicy


def small() -> MeanFlowPolicy:
    torch.manual_seed(0)
    return MeanFlowPolicy(3, 2, low=[-2.0, 0.0], high=[2.0, 1.0], hidden=[8], flow_hidden=[16, 16])


def test_the_derivative_is_that_of_forward_mode():
    torch.manual_seed(1)
    head = MeanFlowHead(4, 2, [8, 8])
    features, x, velocity, time = torch.randn(5, 4), torch.randn(5, 2), torch.randn(5, 2), torch.rand(5, 1)
    end_time = time * torch.rand(5, 1)
    u, derivative = head.with_derivative(features, x, end_time, time, velocity)
    expected, tangent = torch.func.jvp(
        lambda place, at: head(features, place, end_time, at), (x, time), (velocity, torch.ones(5, 1))
    )
    assert_close(u, expected)
    assert_close(derivative, tangent)
    assert derivative.abs().min() > 1e-4


def test_one_step_by_hand():
    """u = 0.1 + 0.5 x - 0.2 r + 0.3 t: from e = -0.6 the action is -0.6 - (0.1 - 0.3 + 0.3) = -0.7; clipped at -1."""
    policy = MeanFlowPolicy(1, 1, hidden=[1], flow_hidden=[])
    (layer,) = policy.head.layers
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0, 0.5, -0.2, 0.3]]))
        layer.bias.fill_(0.1)
    sample = policy.rsample(torch.zeros(2, 1), torch.tensor([[-0.6], [-2.0]]))
    assert_close(sample.action, torch.tensor([[-0.7], [-1.0]]))  # -2 - (0.1 - 1 + 0.3) = -1.4
    assert sample.logprobs.tolist() == [[0.0], [0.0]]


def test_actions_are_a_function_of_the_seed_and_in_the_box():
    policy, states = small(), {"state": torch.randn(40, 3)}
    first, again = (policy.act(states, Sampling(), Noise(range(40))) for _ in range(2))
    np.testing.assert_array_equal(first.output, again.output)
    actions = np.stack(first.output)
    assert (actions >= [-2, 0]).all() and (actions <= [2, 1]).all() and first.action.shape == (40, 1, 2)
    greedy = [policy.act(states, Sampling(decode=decode), Noise(range(40))).action for decode in ("argmax", "mean")]
    assert_close(greedy[0][:, 0], policy.rsample(states["state"], torch.zeros(40, 2)).action)
    assert torch.equal(*greedy) and not torch.equal(greedy[0], first.action)


def test_a_saved_policy_acts_alike(tmp_path):
    policy = small()
    policy.save_pretrained(tmp_path)
    loaded = MeanFlowPolicy(path=str(tmp_path))
    states = {"state": torch.randn(4, 3)}
    assert torch.equal(*(each.act(states, Sampling(), Noise(range(4))).action for each in (policy, loaded)))


def test_what_it_cannot_do_is_refused():
    policy = small()
    with pytest.raises(ValueError, match="a mean flow has no density"):
        policy(Batch(**{"obs.state": torch.zeros(1, 3)}, action=torch.zeros(1, 1, 2), temperature=torch.ones(1)))
    with pytest.raises(ValueError, match="cannot drop unlikely actions"):
        policy.act({"state": torch.zeros(1, 3)}, Sampling(top_k=2), Noise([0]))
