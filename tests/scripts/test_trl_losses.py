"""Losses and gradients of the recipes are TRL's, where TRL is installed."""

import sys
from itertools import pairwise
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
pytest.importorskip("trl", reason="an environment with TRL compares its losses")
sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))


@pytest.fixture(scope="module")
def results():
    from trl_losses import compare

    return compare()


def test_every_loss_and_its_gradient_is_trl_s(results):
    from trl_losses import differences

    assert len(results) >= 18
    for name, (theirs, ours) in results.items():
        loss, gradient = differences(theirs, ours)
        most = max(float(part.abs().max()) for part in ours.gradient.values())
        assert most > 1e-3, name
        assert loss < 1e-5 and gradient < 1e-5 * max(1.0, most), (name, loss, gradient)


def test_the_random_rows_tell_the_losses_apart(results):
    """The clip range, the bound of the ratio and the KL term are felt: no two losses are alike."""
    losses = sorted(ours.loss for _, ours in results.values())
    assert min(b - a for a, b in pairwise(losses)) > 1e-4
