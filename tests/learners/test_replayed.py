"""Phases by their recorded operations: the same weights to the bit, and draws that are what they would have been."""

import pytest
import torch
from torch import nn

from mmrl import recorded
from mmrl.batch import Batch
from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.learners.phases.base import Phase
from mmrl.learners.replayed import CapturedPhase
from tests.tiny_recipes import QUIET


def train(folder, recipe):
    """A short run; it begins with the same decisions and makes 3 x 24 updates."""
    words = (f"recipe={recipe}", "sim.id=Pendulum-v1", *QUIET, "data.evaluation=null", "policy.hidden=[8]")
    words += (
        "data.learning_starts=32",
        "data.rollout.horizon=32",
        "data.replay.batch_size=16",
        "data.gradient_steps=24",
    )
    cli = CLI(
        to_lightning(
            compose([*words, "model.models.critic.hidden=[256]", "trainer.max_epochs=3", f"run_dir='{folder}'"])
        )
    )
    cli.fit()
    return cli.model


@pytest.mark.parametrize("recipe", ["sac", "td3"])
def test_replayed_phases_learn_the_same_to_the_bit(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(recorded, "MIN_CALLS", 4)
    replayed = train(tmp_path / "replayed", recipe)
    records = {name: each._captured._graphs for name, each in replayed._captured.items()}
    assert {name for name, kinds in records.items() if kinds} == {"target", "critic", "actor"}
    assert None not in [record for kinds in records.values() for record in kinds.values()]  # none was given up
    monkeypatch.setattr(recorded, "MIN_CALLS", 10**9)
    own = train(tmp_path / "own", recipe)
    assert not any(each._captured._graphs for each in own._captured.values())
    assert replayed.updates == own.updates == 72
    for (name, one), other in zip(replayed.state_dict().items(), own.state_dict().values(), strict=True):
        assert torch.equal(one, other), name


class Noisy(Phase):
    """loss = sum of weight times draws, as many as `asks` says; tells their sum."""

    parameters = ("policy",)
    models = frozenset({"policy"})

    def __init__(self, asks):
        self.asks = asks

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
    monkeypatch.setattr(recorded, "MIN_CALLS", 2)
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
