"""Losses of a world model and of learning in it, by hand."""

import math

import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Objective
from mmrl.objectives.world_model.imagination import ImaginedReturn, ImaginedSquaredValue
from mmrl.objectives.world_model.predictions import (
    ContinuationPrediction,
    PosteriorKL,
    Reconstruction,
    RewardPrediction,
)
from tests.laws.example import Example

LAWS = [Example(PosteriorKL(0.1))]
MASK = torch.tensor([[True, True, True], [True, True, False]])
ZEROS = torch.zeros(2, 3)


def output(**extra):
    return PolicyOutput(ZEROS, ZEROS, extra=extra)


def test_predictions_by_hand():
    """The first observation of a sequence has no decision before it; what is behind an end counts nothing."""
    batch = Batch(
        action_mask=MASK,
        observed=torch.tensor([[True, True, False], [True, True, False]]),
        previous_reward=torch.tensor([[9.0, 1.0, 2.0], [9.0, -1.0, 9.0]]),
        continues=torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]),
    )
    error = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert_close(Reconstruction()(output(reconstruction_error=error), batch), torch.tensor([[1.0, 2, 0], [4, 5, 0]]))
    # halves of squares of 3 - 1, 3 - 2 and 3 + 1
    predicted = RewardPrediction()(output(reward_prediction=torch.full((2, 3), 3.0)), batch)
    assert_close(predicted, torch.tensor([[0.0, 2.0, 0.5], [0.0, 8.0, 0.0]]))
    # logit log 3: it goes on with probability 3/4
    logits = torch.full((2, 3), math.log(3.0))
    expected = torch.tensor([[0.0, -math.log(0.75), -math.log(0.25)], [0.0, -math.log(0.75), 0.0]])
    assert_close(ContinuationPrediction()(output(continuation_logits=logits), batch), expected)


def test_free_nats_are_those_of_the_mean():
    """Nats 2, 4, 6 and 1, 7 have mean 4: above 3 the gradient is whole, also of the entries below; at 5 it is gone."""
    batch = Batch(action_mask=MASK, loss_weights=MASK / 5)
    for free, value, slope in ((3.0, 4.0, 0.2), (5.0, 5.0, 0.0)):
        nats = torch.tensor([[2.0, 4.0, 6.0], [1.0, 7.0, 99.0]], requires_grad=True)
        loss, _ = Objective({"kl": PosteriorKL(free)}).total(output(information=nats), batch)
        assert_close(loss.item(), value)
        loss.backward()
        assert_close(nats.grad, slope * MASK.float())


def test_imagined_returns_and_values_by_hand():
    reach, returns = torch.tensor([[1.0, 0.5, 0.25]] * 2), torch.tensor([[2.0, 4.0, 8.0]] * 2)
    whole = torch.ones(2, 3, dtype=torch.bool)
    loss = ImaginedReturn()(output(returns=returns, reach=reach), Batch(action_mask=whole))
    assert_close(loss, -torch.full((2, 3), 2.0))
    # values 1: halves of squares 1, 9, 49, times the reach
    out = PolicyOutput(ZEROS, ZEROS, torch.ones(2, 3))
    loss = ImaginedSquaredValue()(out, Batch(action_mask=whole, returns=returns, reach=reach))
    assert_close(loss, torch.tensor([[0.5, 2.25, 6.125]] * 2))
