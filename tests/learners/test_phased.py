"""The manual learner: the order and number of updates, what they may move, and that values come out right."""

import gymnasium
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.errors import ConfigError
from tests.tiny_recipes import QUIET


class TwoStates(gymnasium.Env):
    """In state 0 every action leads to state 1, in state 1 it stays: the reward is 1 in state 0 and 2 in state 1.

    Watched for `limit` steps only: with `terminate` that is a termination, without it a truncation.
    """

    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)

    def __init__(self, limit: int = 4, terminate: bool = False):
        self.limit, self.terminate = limit, terminate

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.time = 0, 0
        return np.eye(2, dtype=np.float32)[0], {}

    def step(self, action):
        reward = 1.0 + self.state
        self.state, self.time = 1, self.time + 1
        over = self.time == self.limit
        return np.eye(2, dtype=np.float32)[1], reward, over and self.terminate, over and not self.terminate, {}


gymnasium.register("tests/TwoStates-v0", entry_point=TwoStates)
BASE = ("sim.id=tests/TwoStates-v0", *QUIET, "data.evaluation=null", "policy.hidden=[8]", "data.learning_starts=32")


def run(folder, recipe, *words):
    words = (f"recipe={recipe}", *BASE, "data.replay.batch_size=32", "data.rollout.horizon=32", *words)
    cli = CLI(to_lightning(compose([*words, f"run_dir='{folder}'"])))
    cli.fit()
    return cli


@pytest.mark.parametrize("n", [1, 3])
def test_values_go_on_through_a_time_limit(n, tmp_path):
    """Discount 1/2: Q(1) = 2 / (1 - 1/2) = 4 and Q(0) = 1 + 4/2 = 3. A limit taken for an end would give less."""
    rate = "model.phases.{}.optimizer.lr=1e-2"
    words = [
        rate.format("critic"),
        "model.phases.polyak_update.tau=0.05",
        "data.gradient_steps=300",
        "trainer.max_epochs=4",
    ]
    words += ["data.replay.gamma=0.5", f"data.replay.n_steps={n}", "model.models.critic.hidden=[16]"]
    cli = run(tmp_path, "td3", *words)
    q = cli.model.models["critic"](torch.eye(2), torch.zeros(2, 1))[:, 0]
    assert_close(q, torch.tensor([[3.0, 3.0], [4.0, 4.0]]), rtol=0, atol=0.05)


def test_values_end_with_an_episode(tmp_path):
    """The last of two steps ends it: Q(1) = 2 and Q(0) = 1 + 2/2 = 2."""
    words = ["sim.kwargs={limit: 2, terminate: true}", "model.phases.critic.optimizer.lr=1e-2"]
    words += [
        "model.phases.polyak_update.tau=0.05",
        "data.gradient_steps=300",
        "trainer.max_epochs=4",
        "data.replay.gamma=0.5",
    ]
    cli = run(tmp_path, "td3", *words, "model.models.critic.hidden=[16]")
    q = cli.model.models["critic"](torch.eye(2), torch.zeros(2, 1))[:, 0]
    assert_close(q, torch.full((2, 2), 2.0), rtol=0, atol=0.05)


def test_updates_are_counted_and_the_actor_waits_for_its_turn(tmp_path):
    """Two updates per decision, several in one step of the trainer, and the actor in every second one."""
    cli = run(
        tmp_path,
        "td3",
        "data.gradient_steps=64",
        "data.updates_per_step=24",
        "data.rollout.horizon=32",
        "trainer.max_epochs=3",
    )
    assert cli.model.updates == 3 * 64 and cli.datamodule.replay.num_transitions == 3 * 32
    critic, actor = cli.trainer.optimizers
    steps = [{int(state["step"]) for state in o.state_dict()["state"].values()} for o in (critic, actor)]
    assert steps == [{192}, {96}]
    # fewer updates than decisions
    few = run(tmp_path / "few", "td3", "data.gradient_steps=8", "trainer.max_epochs=2")
    assert few.model.updates == 16 and few.datamodule.replay.num_transitions == 64


def test_nothing_is_learned_before_the_random_decisions_are_made(tmp_path):
    cli = run(tmp_path, "sac", "data.learning_starts=65", "trainer.max_epochs=3", "data.gradient_steps=5")
    assert cli.model.updates == 5  # after 96 decisions, in the third iteration


def test_a_phase_moves_what_it_trains_and_nothing_else(tmp_path):
    """An actor that learns at rate 0 stays as it was, although the critic's loss was taken through its encoder."""
    words = ["trainer.max_epochs=1", "data.gradient_steps=4", "model.phases.actor.optimizer.lr=0"]
    cli = run(tmp_path, "sac", *words)
    fresh = run(tmp_path / "fresh", "sac", "trainer.max_epochs=1", "data.gradient_steps=4", "data.learning_starts=1000")
    assert_close(dict(cli.model.policy.state_dict()), dict(fresh.model.policy.state_dict()), rtol=0, atol=0)
    critic, target = (cli.model.models[name].weights[0] for name in ("critic", "target_critic"))
    start = fresh.model.models["critic"].weights[0]
    assert (critic != start).any() and 0 < (target - start).abs().max() < (critic - start).abs().max()
    assert all(p.requires_grad for p in cli.model.models["critic"].parameters())
    assert not any(p.requires_grad for p in cli.model.models["target_critic"].parameters())


@pytest.mark.parametrize(
    "word, message",
    [
        ("model.phases.target=null", "reads \\['returns'\\]"),
        ("model.phases.actor.every=0", "every must be at least 1"),
        ("model.phases.critic.output.critic=judge", "uses \\['judge'\\]"),
        ("model.target_networks={target_critic: judge}", "starts as 'judge'"),
        ("model.phases.actor.terms.q={_target_: mmrl.objectives.value.SquaredValue}", "SquaredValue|values"),
    ],
)
def test_phases_that_do_not_fit_are_refused_by_name(word, message, tmp_path):
    with pytest.raises((ConfigError, ValueError), match=message):
        CLI(to_lightning(compose(["recipe=sac", *BASE, word, f"run_dir='{tmp_path}'"])))
