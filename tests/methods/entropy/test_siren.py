"""Entropy of the likely ids against torch.distributions; the penalty that holds its mean at a target."""

import math

import pytest
import torch
from torch.distributions import Categorical
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import Collector, Context, PolicyOutput, Sampling
from mmrl.methods.entropy.siren import LinearizedPenalty, OutputColumn, SelfAnchoredPenalty, nucleus_entropy
from mmrl.objectives.objective import Objective
from mmrl.objectives.weighting import ConstantLength, TokenMean
from mmrl.ops import logprob
from tests.laws.example import Example

LAWS = [
    Example(OutputColumn(part="nucleus_entropy", rows=3), scores=True),
    Example(SelfAnchoredPenalty("nucleus_entropy", target=0.1)),
    Example(LinearizedPenalty("nucleus_entropy")),
]


@pytest.fixture(params=[1 << 24, 12, 3], ids=["whole", "by rows", "by choices"])
def piece(request, monkeypatch):
    monkeypatch.setattr(logprob, "SLICE", request.param)


def oracle(logits, mass):
    """Sort, cut, renormalise, and let torch.distributions say the rest."""
    p, order = logits.softmax(-1).sort(descending=True)
    inside = p.cumsum(-1) <= mass + 1e-12
    inside[..., 0] = True
    return Categorical(torch.zeros_like(p).scatter(-1, order, torch.where(inside, p, 0))).entropy()


def test_nucleus_entropy_by_hand():
    # .5 + .3 <= .85 < .95, so that q = (5, 3) / 8 and H = -(5/8 log 5/8 + 3/8 log 3/8) = .661563; of all four 1.142120
    p = torch.tensor([[[0.5, 0.3, 0.15, 0.05], [0.97, 0.02, 0.01, 1e-9]]]).log()
    assert_close(nucleus_entropy(p, 0.85), torch.tensor([[0.661563, 0.0]]), rtol=0, atol=1e-6)
    assert_close(nucleus_entropy(p, 1.0)[0, 0], torch.tensor(1.142120), rtol=0, atol=1e-6)
    # at temperature 0.5 the odds are squared: (25, 9, 2.25, .25) / 36.5, and the first two still hold .93 > .85
    assert_close(nucleus_entropy(p, 0.85, 0.5)[0, 0], torch.tensor(0.0))


def test_equals_torch_distributions(piece):
    logits = torch.randn(3, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    temperature = torch.tensor([0.5, 1.0, 2.0])
    for mass in (0.3, 0.8, 1.0):
        ours, theirs = (
            nucleus_entropy(logits, mass, temperature),
            oracle(logits / temperature[:, None, None].double(), mass),
        )
        assert_close(ours, theirs)
        weight = torch.arange(12.0).view(3, 4).double()
        pair = [torch.autograd.grad((weight * value).sum(), logits)[0] for value in (ours, theirs)]
        assert_close(*pair)


def test_ids_that_are_as_likely_belong_together():
    assert_close(nucleus_entropy(torch.zeros(1, 1, 4), 0.3), torch.tensor([[math.log(4)]]))


def test_nothing_of_the_size_of_the_vocabulary_is_kept_but_the_logits():
    logits = torch.randn(2, 3, 50, requires_grad=True)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda saved: kept.append(saved) or saved, lambda saved: saved):
        nucleus_entropy(logits, 0.8)
    large = [saved for saved in kept if saved.numel() >= 50]
    assert [saved.data_ptr() for saved in large] == [logits.data_ptr()]


CTX = Context(None, None, None, Sampling(), seed=0, iteration=0)


ENTROPY = torch.tensor([[0.1, 0.2, 0.3], [0.4, 2.0, 9.0]])


MASK = torch.tensor([[True, True, True], [True, True, False]])


def penalised(target, entropy=ENTROPY, length=None):
    annotator = SelfAnchoredPenalty("nucleus_entropy", target=target, length=length)
    return annotator, annotator(Batch(action_mask=MASK, nucleus_entropy=entropy), CTX)


def test_the_slopes_by_hand():
    # the 0.8-quantile of (.1, .2, .3, .4, 2) is .4 + .2 (2 - .4) = .72: only the last counts, h = 2, slope 2 (2 - 1.5)
    annotator, batch = penalised(1.5)
    assert_close(batch["penalty_slope"], torch.tensor([[0.0, 0, 0], [0, 5.0, 0]]))  # 1 times n / |P| = 5
    assert annotator.metrics(batch, CTX) == pytest.approx({"mean": 2.0, "target": 1.5, "fraction": 0.2})
    assert (annotator.metrics(batch, CTX)["mean"] - 1.5) ** 2 * 0.005 == pytest.approx(0.00125)


@pytest.mark.parametrize("weighting, length", [(TokenMean(), None), (ConstantLength(8), 8)])
def test_the_gradient_is_that_of_the_squared_distance(weighting, length):
    entropy = ENTROPY.clone().requires_grad_()
    _, batch = penalised(0.3, ENTROPY, length)
    batch = batch.with_columns(loss_weights=weighting(batch, lambda value: value))
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
            return [*items, there] if torch.is_tensor(items[0]) else [*items, 1]

    ctx = Context(None, None, None, Sampling(), seed=0, iteration=0, collector=Ranks())
    annotator = SelfAnchoredPenalty("nucleus_entropy", target=0.0)
    batch = annotator(Batch(action_mask=MASK, nucleus_entropy=ENTROPY), ctx)
    # seven entries, the quantile lies at place 4.8 between .5 and 2: 2 and 3 count
    assert annotator.metrics(batch, ctx) == pytest.approx({"mean": 2.5, "target": 0.0, "fraction": 2 / 7})
    scaled = SelfAnchoredPenalty("nucleus_entropy", target=0.0, length=8)
    slopes = scaled(Batch(action_mask=MASK, nucleus_entropy=ENTROPY), ctx)["penalty_slope"]
    assert_close(slopes, batch["penalty_slope"] * 3 * 8 / 7)  # three rows with a choice in place of seven choices


def test_the_nucleus_has_ids_up_to_its_mass():
    # 1/2 + 1/4 = 3/4: q = (2/3, 1/3), H = -(2/3 log 2/3 + 1/3 log 1/3) = .636514
    logits = torch.tensor([[[4.0, 2.0, 1.0, 1.0]]]).double().log()
    assert logits.softmax(-1).cumsum(-1)[0, 0, 1] == 0.75
    assert_close(nucleus_entropy(logits, 0.75), torch.tensor([[0.636514]]).double(), rtol=0, atol=1e-6)


def test_ids_of_probability_0_are_in_no_nucleus():
    logits = torch.tensor([[[0.0, 0.0, -torch.inf]]], requires_grad=True)
    entropy = nucleus_entropy(logits, 1.0)
    assert_close(entropy, torch.tensor([[math.log(2)]]))
    (gradient,) = torch.autograd.grad(entropy.sum(), logits)
    assert_close(gradient, torch.zeros(1, 1, 3))


def test_an_entry_at_the_quantile_counts():
    # the .75-quantile of (.1, .2, .3, .4, 2) is .4: h = 1.2 over two entries, slope 2 (1.2 - .2) 5 / 2 = 5
    annotator = SelfAnchoredPenalty("nucleus_entropy", quantile=0.75, target=0.2)
    batch = annotator(Batch(action_mask=MASK, nucleus_entropy=ENTROPY), CTX)
    assert_close(batch["penalty_slope"], torch.tensor([[0.0, 0, 0], [5.0, 5.0, 0]]))
    assert annotator.metrics(batch, CTX) == pytest.approx({"mean": 1.2, "target": 0.2, "fraction": 0.4})


def test_the_linearised_penalty_by_hand():
    # 2 * .5 inside the mask; nothing outside is read
    values, slopes = torch.tensor([[2.0, torch.nan, 3.0]]), torch.tensor([[0.5, 4.0, torch.nan]])
    batch = Batch(action_mask=torch.tensor([[True, False, False]]), penalty_slope=slopes)
    out = PolicyOutput(torch.zeros(1, 3), torch.zeros(1, 3), None, {"nucleus_entropy": values})
    assert_close(LinearizedPenalty("nucleus_entropy")(out, batch), torch.tensor([[1.0, 0, 0]]))
    metrics = LinearizedPenalty("nucleus_entropy").metrics(out, batch)
    assert_close(metrics["nucleus_entropy"], torch.tensor([[2.0, 0, 0]]))
