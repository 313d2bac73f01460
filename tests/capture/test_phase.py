"""A captured phase gives the same weights to the bit, and its draws are what they would have been."""

import pytest
import torch
from torch import nn

from mmrl.capture import graph
from mmrl.capture.phase import CapturedPhase
from mmrl.core.batch import Batch
from mmrl.learners.phases.base import Phase


class Noisy(Phase):
    """loss = sum of weight times draws, as many as `asks` says; tells their sum."""

    parameters = ("policy",)

    def __init__(self, asks):
        self.asks = asks

    def models(self):
        return frozenset({"policy"})

    def __call__(self, batch, ctx):
        draws = torch.stack([ctx.normal(2) for _ in range(self.asks)])
        ctx.log({"draws": draws.sum()})
        ctx.minimize((ctx.models["policy"].weight * draws.sum(0) * batch["x"]).sum())
        return batch


def replays(asks):
    policy = nn.Linear(2, 1)
    models = {"policy": policy}
    generator = torch.Generator().manual_seed(0)
    phase = Noisy(asks)
    replayed = CapturedPhase("noisy", phase, list(policy.parameters()))

    def call(x=1.0):
        normal = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
        return replayed(Batch(x=torch.full((1, 2), x)), models, normal, ())

    return phase, call


def test_draws_go_on_as_they_would_and_unread_parameters_have_no_gradient(monkeypatch):
    """The gradient of weight * draws * x is draws * x, with the draws of one generator in their order."""
    monkeypatch.setattr(graph, "MIN_CALLS", 2)
    _, call = replays(asks=2)
    same = torch.Generator().manual_seed(0)
    for _ in range(8):
        draws = torch.randn(2, generator=same) + torch.randn(2, generator=same)
        _, reported, (weight, bias) = call(x=3.0)
        torch.testing.assert_close(weight[0], 3 * draws)
        torch.testing.assert_close(reported["draws"], draws.sum())
        assert bias is None


@pytest.mark.parametrize("asks, message", [(3, "another draw of shape \\[2\\]"), (1, "fewer draws")])
def test_a_phase_whose_draws_change_on_their_own_is_refused(asks, message):
    phase, call = replays(asks=2)
    call()
    phase.asks = asks
    with pytest.raises(ValueError, match=f"phase 'noisy' asks for .*{message}"):
        call()
