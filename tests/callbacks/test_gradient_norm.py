"""The norm of a gradient is that of the optimiser that steps."""

import pytest
import torch
from torch import nn

from mmrl.callbacks.gradient_norm import GradientNorm


class Learner(nn.Module):
    """Two models with an optimiser each, as off-policy phases have."""

    def __init__(self):
        super().__init__()
        self.critic, self.policy = (nn.Linear(1, 1, bias=False) for _ in range(2))
        self.metrics = {}

    def report(self, metrics):
        self.metrics |= metrics


def test_gradients_of_other_phases_are_not_measured():
    learner, callback = Learner(), GradientNorm()
    learner.critic.weight.grad, learner.policy.weight.grad = torch.full((1, 1), 3.0), torch.full((1, 1), 4.0)
    for model, mean in ((learner.critic, 3.0), (learner.policy, 3.5)):
        callback.on_before_optimizer_step(None, learner, torch.optim.SGD(model.parameters()))
        assert learner.metrics["train/gradient_norm"] == pytest.approx(mean)
    callback.on_train_epoch_start(None, learner)
    callback.on_before_optimizer_step(None, learner, torch.optim.SGD(learner.parameters()))
    assert learner.metrics["train/gradient_norm"] == pytest.approx(5.0)
