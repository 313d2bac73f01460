"""Runs on recorded transitions: without a simulator, going on online in the same buffer, and resumed."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from mmrl.__main__ import main
from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from tests.data.offline.recordings import arrays, write
from tests.datasets.episodes import episode
from tests.datasets.episodes import write as write_lerobot
from tests.tiny_recipes import QUIET

SMALL = (*QUIET, "policy.hidden=[8]", "data.gradient_steps=4", "data.replay.batch_size=8", "data.replay.capacity=100")


@pytest.fixture
def log(tmp_path):
    """Recorded transitions of a simulator like Pendulum: three numbers are seen, an action is in [-2, 2]."""
    columns = arrays([6, 5, 7], ["time", "done", "time"], actions=1)
    return write(tmp_path / "log.hdf5", **{**columns, "actions": 2 * columns["actions"]})


def fit(folder, *words):
    cli = CLI(to_lightning(compose([*words, *SMALL, f"run_dir='{folder}'"])))
    cli.fit()
    return cli


@pytest.mark.parametrize("recipe", ["iql", "td3_bc"])
def test_own_data_in_one_line_without_a_simulator(log, tmp_path, recipe):
    words = [f"recipe={recipe}", "setting=transitions", f"task.path='{log}'", *SMALL, "trainer.max_epochs=2"]
    assert main(["fit", *words, f"run_dir='{tmp_path}/run'"]) == 0
    config = json.loads((tmp_path / "run/policy/config.json").read_text())
    actions = arrays([6, 5, 7], ["time", "done", "time"], actions=1)["actions"] * 2
    np.testing.assert_allclose([config["low"], config["high"]], [[actions.min()], [actions.max()]])
    assert (config["observation_dims"], config["actions"]) == (3, 1)


def test_a_lerobot_dataset_in_one_line(tmp_path):
    folder = write_lerobot(tmp_path / "log", [episode(5, 0, True), episode(4, 1, False)])
    words = ["recipe=iql", "setting=transitions", f"task.path='{folder}'", *SMALL, "trainer.max_epochs=1"]
    words += ["policy.state=proprio", "policy.observation_dims=5", "model.models.value.features=5"]
    assert main(["fit", *words, "model.models.critic.features=5", f"run_dir='{tmp_path}/run'"]) == 0


def test_online_goes_on_in_the_buffer_of_the_recording(log, tmp_path):
    """16 of 18 recorded transitions have a next observation; from iteration 1 on 2 x 8 are added per iteration."""
    online = ("data.collect_from=1", "data.rollout.num_envs=2", "data.rollout.horizon=8", "data.evaluation=null")
    cli = fit(tmp_path / "run", "recipe=awac", f"data.path='{log}'", *online, "trainer.max_epochs=3")
    replay = cli.datamodule.replay
    assert replay.num_transitions == 16 + 2 * 16 and cli.model.updates == 3 * 4
    recorded = replay.storage.columns["obs.state"][:5, 0].tolist()
    assert recorded == [0, 1, 2, 3, 4]  # numbers of the rows in the file


def test_without_a_simulator_nothing_can_be_collected(log, tmp_path):
    words = ["recipe=awac", "setting=transitions", f"task.path='{log}'", "data.collect_from=1", "trainer.max_epochs=2"]
    with pytest.raises(ValueError, match=r"data\.collect_from=1"):
        fit(tmp_path / "run", *words)


def test_a_run_that_is_resumed_is_the_same_run(log, tmp_path):
    """The checkpoint does not hold the recording, which the file fills in again."""
    words = ("recipe=iql", "setting=transitions", f"task.path='{log}'", "policy.normalize_observations=true")
    whole = fit(tmp_path / "whole", *words, "trainer.max_epochs=2")
    first = ("trainer.max_epochs=1", "trainer.callbacks.last.every_n_epochs=1")
    half = fit(tmp_path / "part", *words, *first)
    assert "replay" not in half.datamodule.state_dict()
    checkpoint = next((tmp_path / "part").rglob("last.ckpt"))
    resumed = fit(tmp_path / "part", *words, "trainer.max_epochs=2", f"ckpt_path='{checkpoint}'")
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name


def test_without_a_file_random_decisions_are_recorded_once(tmp_path):
    words = ("data.learning_starts=8", "data.rollout.num_envs=2", "data.rollout.horizon=8", "data.evaluation=null")
    cli = fit(tmp_path / "run", "recipe=iql", *words, "trainer.max_epochs=3")
    assert cli.datamodule.replay.num_transitions == 16 and cli.model.updates == 12
