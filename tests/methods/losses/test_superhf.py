"""Best of n, and its loss with the KL to the start by hand."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import Episode, PolicyOutput, Prompt
from mmrl.methods.losses.superhf import KeepBest
from mmrl.objectives.distillation import GKDLoss
from mmrl.objectives.imitation import NegativeLogLikelihood
from mmrl.objectives.objective import Objective


def test_the_best_of_each_group_is_kept():
    rewards = {0: [0.1, 0.9, 0.9], 1: [0.5, 0.2, 0.3]}
    episodes = [Episode(Prompt("p"), g, i, reward=r) for g, column in rewards.items() for i, r in enumerate(column)]
    assert [(e.group, e.sample_index) for e in KeepBest()(episodes, None)] == [(0, 1), (1, 0)]
    assert [(e.group, e.sample_index) for e in KeepBest(2)(episodes, None)] == [(0, 1), (0, 2), (1, 0), (1, 2)]
    with pytest.raises(ValueError, match="count"):
        KeepBest(0)


def test_the_loss_by_hand():
    # the policy [.75, .25] took the first id, the start is [.5, .5]:
    # -log .75 + .35 (.75 log 1.5 + .25 log .5) = .287682 + .35 * .130812 = .333466
    policy, start = torch.tensor([[[0.75, 0.25]]]).log(), torch.tensor([[[0.5, 0.5]]]).log()
    zero = torch.zeros(1, 1)
    there = PolicyOutput(zero, zero, extra={"choice_logprobs": start})
    out = PolicyOutput(policy[..., 0], zero, extra={"choice_logprobs": policy}, others={"reference": there})
    terms = {"imitation": NegativeLogLikelihood(), "kl": GKDLoss(1.0, teacher="reference")}
    batch = Batch(action_mask=torch.ones(1, 1).bool(), loss_weights=torch.ones(1, 1))
    loss, parts = Objective(terms, {"kl": 0.35})(out, batch)
    assert_close(parts["kl"], torch.tensor(0.130812), atol=1e-6, rtol=0)
    assert_close(loss, torch.tensor(0.333466), atol=1e-6, rtol=0)
