"""The penalty that holds a mean over the batch at its target."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.annotators.self_anchored import SelfAnchoredPenalty
from mmrl.batch import Batch
from mmrl.objectives.objective import Objective
from mmrl.objectives.regularizer import LinearizedPenalty
from mmrl.types import Collector, Context, PolicyOutput, Sampling

CTX = Context(None, None, None, Sampling(), seed=0, iteration=0)
ENTROPY = torch.tensor([[0.1, 0.2, 0.3], [0.4, 2.0, 9.0]])
MASK = torch.tensor([[True, True, True], [True, True, False]])


def penalised(target, entropy=ENTROPY):
    annotator = SelfAnchoredPenalty("nucleus_entropy", target=target)
    return annotator, annotator(Batch(action_mask=MASK, nucleus_entropy=entropy), CTX)


def test_hand_computed():
    # the 0.8-quantile of (.1, .2, .3, .4, 2) is .4 + .2 (2 - .4) = .72: only the last counts, h = 2, slope 2 (2 - 1.5)
    annotator, batch = penalised(1.5)
    assert_close(batch["penalty_slope"], torch.tensor([[0.0, 0, 0], [0, 5.0, 0]]))  # 1 times n / |P| = 5
    assert annotator.metrics(batch, CTX) == pytest.approx({"mean": 2.0, "target": 1.5, "fraction": 0.2})
    assert (annotator.metrics(batch, CTX)["mean"] - 1.5) ** 2 * 0.005 == pytest.approx(0.00125)


def test_the_gradient_is_that_of_the_squared_distance():
    entropy = ENTROPY.clone().requires_grad_()
    _, batch = penalised(0.3, ENTROPY)
    batch = batch.with_columns(loss_weights=MASK / MASK.sum())
    out = PolicyOutput(entropy, entropy, None, {"nucleus_entropy": entropy})
    Objective({"penalty_slope": LinearizedPenalty("nucleus_entropy")})(out, batch)[0].backward()
    other = ENTROPY.clone().requires_grad_()
    ((other[1, 1:2].mean() - 0.3) ** 2).backward()
    assert_close(entropy.grad, other.grad)


def test_the_anchor_is_what_was_found_first_and_outlives_a_resume():
    annotator, batch = penalised(None)
    assert (batch["penalty_slope"] == 0).all() and annotator.state_dict() == {"target": 2.0}
    again = SelfAnchoredPenalty("nucleus_entropy")
    again.load_state_dict(annotator.state_dict())
    assert_close(
        again(Batch(action_mask=MASK, nucleus_entropy=ENTROPY / 2), CTX)["penalty_slope"].amin(), torch.tensor(-10.0)
    )


def test_all_ranks_count_together():
    there = torch.tensor([0.5, 3.0], dtype=torch.float64)

    class Ranks(Collector):
        def gather(self, items):
            return [*items, there]

    ctx = Context(None, None, None, Sampling(), seed=0, iteration=0, collector=Ranks())
    annotator = SelfAnchoredPenalty("nucleus_entropy", target=0.0)
    batch = annotator(Batch(action_mask=MASK, nucleus_entropy=ENTROPY), ctx)
    # seven entries, the quantile lies at place 4.8 between .5 and 2: 2 and 3 count
    assert annotator.metrics(batch, ctx) == pytest.approx({"mean": 2.5, "target": 0.0, "fraction": 2 / 7})
