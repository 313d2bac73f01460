"""Entropy of the likely part of a distribution: by hand, against torch.distributions, and what it keeps in memory."""

import math

import pytest
import torch
from torch.distributions import Categorical
from torch.testing import assert_close

from mmrl.ops import logprob
from mmrl.ops.nucleus import nucleus_entropy


@pytest.fixture(params=[1 << 24, 12, 3], ids=["whole", "by rows", "by choices"])
def piece(request, monkeypatch):
    monkeypatch.setattr(logprob, "SLICE", request.param)


def oracle(logits, mass):
    """Sort, cut, renormalise, and let torch.distributions say the rest."""
    p, order = logits.softmax(-1).sort(descending=True)
    inside = p.cumsum(-1) <= mass + 1e-12
    inside[..., 0] = True
    return Categorical(torch.zeros_like(p).scatter(-1, order, torch.where(inside, p, 0))).entropy()


def test_hand_computed():
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
