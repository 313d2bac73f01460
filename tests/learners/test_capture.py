"""A whole update epoch in one of Lightning's steps makes the same updates as a step for each minibatch."""

import torch
from torch import nn
from torch.testing import assert_close

from mmrl.learners.flat import FlatParameters
from tests.tiny_recipes import fit

WORDS = ("recipe=ppo_control", "model.scheduler.total_iters=20", "data.update_epochs=2", "data.num_minibatches=3")
WORDS += ("data.rollout.num_envs=3", "data.rollout.horizon=8", "data.evaluation=null", "trainer.max_epochs=2")


def test_update_epochs_and_minibatches_learn_the_same(tmp_path):
    whole = fit(tmp_path / "whole", *WORDS)
    cut = fit(tmp_path / "cut", *WORDS, "model.capture=false")
    # the norm that clips is summed in another order: a few units in the last place in each of 12 updates of 1e-3
    assert_close(whole["weights"], cut["weights"], atol=2e-6, rtol=0)
    for one, other in zip(whole["metrics"], cut["metrics"], strict=True):
        assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_a_vector_of_parameters_learns_as_its_parts_do():
    torch.manual_seed(0)
    one, other = (nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)) for _ in range(2))
    other.load_state_dict(one.state_dict())
    flat = FlatParameters(list(one.parameters()))
    ours, plain = torch.optim.AdamW([flat.vector], lr=0.1), torch.optim.AdamW(other.parameters(), lr=0.1)
    one.zero_grad()  # drops the gradients, as Lightning does at the start
    flat.tie()
    for _ in range(3):
        x = torch.randn(5, 3)
        plain.zero_grad()
        flat.vector.grad.copy_(flat.gradient(one(x).square().mean()))
        other(x).square().mean().backward()
        flat.clip(0.1)
        nn.utils.clip_grad_norm_(other.parameters(), 0.1)
        ours.step()
        plain.step()
        assert_close(one.state_dict(), other.state_dict(), atol=1e-6, rtol=1e-5)
