"""Diagnostics are means over choices under every weighting, in whatever pieces a minibatch comes."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Objective
from mmrl.objectives.policy import ClippedSurrogate
from mmrl.objectives.regularizer import KL, Entropy
from mmrl.objectives.weighting import ConstantLength, SequenceMean, TokenMean

LENGTHS = torch.tensor([10, 3, 3, 4])
MASK = torch.arange(10) < LENGTHS[:, None]


def rows() -> tuple[PolicyOutput, Batch]:
    """A policy that has not changed: every ratio is 1, every entropy 2 nats, the reference half a nat below."""
    logprobs = torch.full((4, 10), -2.0)
    batch = Batch(
        action_mask=MASK,
        behavior_logprobs=logprobs,
        ref_logprobs=logprobs - 0.5,
        advantages=torch.ones(4, 10),
        is_demo=torch.tensor([True, False, False, False]),
    )
    return PolicyOutput(logprobs, torch.full((4, 10), 2.0)), batch


TERMS = {"policy": ClippedSurrogate(), "kl": KL("k1"), "entropy": Entropy()}


@pytest.mark.parametrize("weighting", [ConstantLength(64), TokenMean(), SequenceMean()])
def test_ratio_entropy_and_kl_are_means_under_every_weighting(weighting):
    out, batch = rows()
    objective = Objective(TERMS)
    weights = weighting(batch, lambda value: value)
    _, sums = objective(out, batch.with_columns(loss_weights=weights))
    means = objective.average(sums)
    assert_close(means["policy/ratio"], torch.tensor(1.0))
    assert_close(means["policy/clip_fraction"], torch.tensor(0.0))
    assert_close(means["entropy/mean"], torch.tensor(2.0))
    assert_close(means["kl/mean"], torch.tensor(0.5))
    assert_close(means["entropy"], -2.0 * weights.sum())  # the part of the loss, as it is
    assert not any(name.startswith("weight") for name in means)


def test_the_mean_of_the_pieces_of_a_minibatch_is_that_of_the_minibatch():
    out, batch = rows()
    batch["behavior_logprobs"] = batch["behavior_logprobs"] + torch.linspace(-1, 1, 40).view(4, 10)
    objective = Objective(TERMS)
    batch = batch.with_columns(loss_weights=ConstantLength(64)(batch, lambda value: value))
    whole = objective.average(objective(out, batch)[1])
    pieces = []
    for index in (torch.tensor([0]), torch.tensor([1, 2, 3])):
        part = PolicyOutput(out.logprobs[index], out.entropy[index])
        pieces.append(objective(part, batch.select(index))[1])
    mean = objective.average({name: (pieces[0][name] + pieces[1][name]) / 2 for name in pieces[0]})
    assert_close(mean["policy/ratio"], whole["policy/ratio"])
    ratio = (out.logprobs - batch["behavior_logprobs"]).exp()
    assert_close(whole["policy/ratio"], ratio[MASK].mean())


def test_diagnostics_of_some_rows_are_means_over_those_rows():
    out, batch = rows()
    objective = Objective({"policy": ClippedSurrogate(), "demo": Entropy()}, row_masks={"demo": "is_demo"})
    batch = batch.with_columns(loss_weights=ConstantLength(64)(batch, lambda value: value))
    assert_close(objective.average(objective(out, batch)[1])["demo/mean"], torch.tensor(2.0))
    none = batch.with_columns(is_demo=torch.zeros(4, dtype=torch.bool))
    assert "demo/mean" not in objective.average(objective(out, none)[1])  # there is nothing to average
