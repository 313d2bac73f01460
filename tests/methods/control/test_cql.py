"""CQL's penalty by hand, the sampled integral against a closed form, and the forward pass against a loop."""

import math

import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.learners.phases.base import UpdateContext
from mmrl.methods.control.cql import ConservativeActions, ConservativePenalty, log_sum_exp_of_q
from mmrl.policies.control.actor import SquashedPolicy
from mmrl.policies.control.critic import Critics


def test_the_integral_by_hand():
    """Two uniform samples in [-1, 1], density 1/2: log((2 e^1 + 2 e^0) / 2) = log(e + 1) = 1.313262."""
    q, density = torch.tensor([[[1.0], [0.0]]]), torch.full((1, 2), -math.log(2))
    assert_close(log_sum_exp_of_q(q, density), torch.tensor([[1.313262]]))


def test_the_integral_of_a_linear_function():
    """Over a in [-1, 1], the integral of exp(2 a) is sinh(2) = 3.626860; of 20,001 evenly spaced actions too."""
    a = torch.linspace(-1, 1, 20_001, dtype=torch.float64)
    result = log_sum_exp_of_q(2 * a[None, :, None], torch.full((1, len(a)), -math.log(2), dtype=torch.float64))
    assert_close(result.item(), math.log(math.sinh(2)), atol=2e-4, rtol=0)


def test_the_penalty_by_hand():
    """Two critics: (2 - 0.5) + (1 - 3) = -0.5."""
    extra = {"q": torch.tensor([[[0.5, 3.0]]]), "q_soft": torch.tensor([[[2.0, 1.0]]])}
    out = PolicyOutput(torch.zeros(1, 1), torch.zeros(1, 1), extra=extra)
    assert ConservativePenalty()(out, Batch(action_mask=torch.tensor([[True]]))).tolist() == [[-0.5]]


def test_the_forward_pass_is_a_loop_over_rows_and_samples():
    torch.manual_seed(0)
    policy, critic = SquashedPolicy(observation_dims=3, actions=2, hidden=[8]), Critics(3, 2, [8])
    batch = Batch(**{"obs.state": torch.randn(2, 3), "next.state": torch.randn(2, 3)}, action=torch.randn(2, 1, 2))
    draws = []

    def normal(*shape):
        draws.append(torch.randn(*shape))
        return draws[-1]

    ctx = UpdateContext({"policy": policy, "critic": critic}, normal, lambda loss: None, lambda metrics: None)
    out = ConservativeActions(samples=3)(batch, ctx)
    for row in range(2):
        state, following, parts = batch["obs.state"][row], batch["next.state"][row], []
        for i in range(3):
            action = 2 * (0.5 * (1 + torch.erf(draws[0][row, i] / math.sqrt(2)))) - 1
            parts.append(critic(state[None], action[None])[0, 0] + 2 * math.log(2))
        for place, noise in ((state, draws[1]), (following, draws[2])):
            for i in range(3):
                sample = policy.rsample(place[None], noise[row, i][None])
                parts.append(critic(state[None], sample.action)[0, 0] - sample.logprobs[0, 0])
        expected = torch.stack(parts).exp().mean(0).log()
        assert_close(out.extra["q_soft"][row, 0], expected, atol=1e-5, rtol=1e-4)
        recorded = batch["action"][row].tanh()
        assert_close(out.extra["q"][row, 0], critic(state[None], recorded)[0, 0])
    # the penalty trains the critics alone: no action has a gradient
    out.extra["q_soft"].sum().backward()
    assert all(parameter.grad is None for parameter in policy.parameters())
