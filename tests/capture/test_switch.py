"""`capture` changes the time of a run and none of its weights; tests/capture/test_learner.py compares control."""

import pytest
import torch

from mmrl.capture import contexts, graph
from mmrl.capture.engine import CapturedEngine
from mmrl.capture.phased import CapturedPhasedLearner
from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.learners.phased import PhasedLearner
from tests.test_recipes import shrink
from tests.tiny_recipes import override

OFF_POLICY = ("data.gradient_steps=24", "trainer.max_epochs=3")
RUNS = {
    "grpo": ("data.sampling.max_tokens=8", "trainer.max_epochs=3"),
    "flow_sde_grpo": ("data.num_prompts=2", "trainer.max_epochs=2"),
    "sac": OFF_POLICY,
    "td3": OFF_POLICY,
    "double_dqn": OFF_POLICY,
    # convolutions, whose gradients have another layout in memory than their weights
    "sac_pixels": ("data.gradient_steps=8", "trainer.max_epochs=2"),
}


def train(folder, recipe, capture):
    """A run of seconds with or without capture."""
    more = RUNS[recipe]
    small = override(shrink((f"recipe={recipe}",), folder), more)
    config = compose([*small, f"capture={str(capture).lower()}"])
    if "replay" not in config.data:
        config.data.reward = {"_target_": "tests.tiny_recipes.Alternating"}
    cli = CLI(to_lightning(config))
    cli.fit()
    return cli


def graphs_of(cli):
    """All captured graphs of a run."""
    if isinstance(cli.model, CapturedPhasedLearner):
        found = [phase.graph for phase in cli.model._phases.values()]
    else:
        found = [cli.model.policy.captured.graph]
    return [each for one in found for each in one.graphs.values()]


@pytest.mark.parametrize("recipe", RUNS)
def test_a_run_has_the_same_weights_with_and_without_capture(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(graph, "MIN_CALLS", 4)
    monkeypatch.setattr(contexts, "MIN_CALLS", 2)
    captured, plain = (train(tmp_path / str(on), recipe, on) for on in (True, False))
    found = graphs_of(captured)
    assert any(found) and (None not in found or recipe == "sac_pixels")  # some were captured, and none was given up
    one, other = captured.model.state_dict(), plain.model.state_dict()
    assert one.keys() == other.keys()
    assert all(torch.equal(part, other[name]) for name, part in one.items())


def test_without_the_switch_nothing_is_captured(tmp_path):
    plain = train(tmp_path, "sac", False)
    assert type(plain.model) is PhasedLearner and not isinstance(plain.datamodule.engine, CapturedEngine)
    assert plain.model.policy.captured is None
