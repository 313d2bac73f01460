"""Parts of a policy that learn at a pace of their own."""

from functools import partial

import pytest
import torch
from torch import nn

from mmrl.learners.learner import Learner


class Parts(nn.Module):
    """Three parameters, one of them frozen."""

    def __init__(self):
        super().__init__()
        self.body, self.value_head = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
        self.eye = nn.Linear(1, 1, bias=False).requires_grad_(False)


def learner(rates):
    return Learner(Parts(), objective=nn.Identity(), optimizer=partial(torch.optim.SGD, lr=0.1), learning_rates=rates)


def test_a_part_has_its_own_rate_and_what_is_frozen_none():
    result = learner({"value": 0.5})
    optimizer = result.configure_optimizers()
    for parameter in result.policy.parameters():
        parameter.data.fill_(1.0)
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    left = {name: parameter.item() for name, parameter in result.policy.named_parameters()}
    assert left == pytest.approx({"body.weight": 0.9, "value_head.weight": 0.5, "eye.weight": 1.0})


def test_the_longest_name_decides():
    with pytest.raises(ValueError, match=r"begins with \['value'\]"):  # nothing is left for it
        learner({"value": 0.5, "value_head": 0.7}).configure_optimizers()


def test_a_name_of_nothing_is_refused():
    with pytest.raises(ValueError, match=r"no trained parameter of Parts begins with \['eye'\]"):
        learner({"eye": 0.5}).configure_optimizers()
