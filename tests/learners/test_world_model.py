"""Runs of a world model on states that can be counted: what it says of rewards, ends and values."""

import gymnasium
import numpy as np
import pytest
import torch

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.errors import ConfigError
from mmrl.distributed import parallel
from tests.tiny_recipes import QUIET


class Countdown(gymnasium.Env):
    """Two steps that each pay 1; the second one terminates the episode. The state says how many are left."""

    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
    metadata = {"render_modes": []}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 2
        return np.eye(2, dtype=np.float32)[0], {}

    def step(self, action):
        self.left -= 1
        return np.eye(2, dtype=np.float32)[1], 1.0, self.left == 0, False, {}


gymnasium.register("tests/Countdown-v0", entry_point=Countdown)
WORDS = (
    "recipe=dreamer",
    "phases=dreamer_ends",
    "sim=gym",
    "sim.id=tests/Countdown-v0",
    *QUIET,
    "data.evaluation=null",
    "data.learning_starts=32",
    "data.rollout.num_envs=2",
    "data.rollout.horizon=32",
    "data.replay.batch_size=8",
    "data.replay.chunk=3",
    "policy.hidden=[8]",
    "policy.belief_size=8",
    "policy.state_size=2",
    "policy.hidden_size=8",
    "model.models.continuation.hidden=[16]",
    "model.phases.model.terms.kl.free_nats=0",  # what is free is not learned by the prior
)


def test_ends_and_values_of_two_steps(tmp_path):
    """In the first state 2 rewards are left, V = 1 + 0.95 = 1.95; in the second one V = 1, since then it is over."""
    rates = [f"model.phases.{name}.optimizer.lr={rate}" for name, rate in (("model", 2e-2), ("critic", 2e-2))]
    words = [*WORDS, *rates, "trainer.max_epochs=2", "data.gradient_steps=80", f"run_dir='{tmp_path}'"]
    cli = CLI(to_lightning(compose([*words, "model.phases.starts.horizon=2"])))
    cli.fit()
    policy, models = cli.model.policy, cli.model.models
    shown = torch.eye(2)[None]  # both observations of an episode
    with torch.no_grad():
        sequence = policy.rssm.observe(
            policy.encoder({"state": shown[0]})[None], torch.zeros(1, 2, 1), torch.zeros(1, 2, 2)
        )
        features = sequence.features[0]
        belief, state = policy.rssm.imagine(
            sequence.belief[:, 1], sequence.state[:, 1], torch.zeros(1, 1), torch.zeros(1, 2)
        )
        over = torch.cat([belief, state], dim=-1)
        goes_on = models["continuation"](torch.cat([features[1:], over]))[:, 0].sigmoid()
        rewards = models["reward"](torch.cat([features[1:], over]))[:, 0]
        values = models["critic"](features)[:, 0]
    assert goes_on[0] > 0.95 and goes_on[1] < 0.05
    assert rewards.tolist() == pytest.approx([1.0, 1.0], abs=0.1)
    assert values.tolist() == pytest.approx([1.95, 1.0], abs=0.25)  # without ends it would be 20


def test_several_processes_are_refused(tmp_path, monkeypatch):
    cli = CLI(to_lightning(compose([*WORDS, f"run_dir='{tmp_path}'"])))
    monkeypatch.setattr(parallel, "rank_and_size", lambda: (0, 2))
    with pytest.raises(ConfigError, match=r"one process: set trainer\.devices=1"):
        cli.datamodule.setup("fit")
