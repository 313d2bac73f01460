"""Runs on recordings whose rewards come from comparisons of pictures: with a played log, own files, and resumed."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
import torch

from mmrl.__main__ import main
from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.data.offline.played_log import PlayedLog
from sims.point import PointSim
from sims.point.discs import TwoDiscs
from sims.task import SimTask
from tests.tiny_recipes import QUIET

SMALL = (
    *QUIET,
    "policy.hidden=[8]",
    "data.gradient_steps=4",
    "data.replay.batch_size=8",
    "data.replay.capacity=200",
    "data.relabelling.num_pairs=20",
    "data.relabelling.members=1",
    "data.relabelling.passes=1",
)
PREFER = (
    "data.relabelling.comparer={_target_: mmrl.methods.control.offline_rl_vlm_f.comparers.FunctionComparer, function: "
    "'tests.methods.control.offline_rl_vlm_f.recording:prefer_bright'}"
)


@pytest.fixture
def log(tmp_path):
    """A robomimic file of four episodes of five steps, with pictures and without rewards."""
    rng = np.random.default_rng(0)
    with h5py.File(tmp_path / "log.hdf5", "w") as file:
        file.create_group("data").attrs["problem_info"] = '{"language_instruction": "a bright room"}'
        for number in range(4):
            levels = rng.integers(0, 250, 6).astype(np.uint8)
            pictures = np.broadcast_to(levels[:, None, None, None], (6, 17, 17, 3))
            demo = file.create_group(f"data/demo_{number}")
            demo["actions"] = rng.uniform(-1, 1, (5, 2)).astype(np.float32)
            for name, rows in (("obs", slice(0, 5)), ("next_obs", slice(1, 6))):
                demo[f"{name}/image"], demo[f"{name}/state"] = pictures[rows], levels[rows, None].astype(np.float32)
    return tmp_path / "log.hdf5"


def fit(folder, *words):
    cli = CLI(to_lightning(compose([*words, *SMALL, f"run_dir='{folder}'"])))
    cli.fit()
    return cli


def test_own_pictures_without_rewards_in_one_line(log, tmp_path):
    words = ["recipe=offline_rl_vlm_f", "setting=transitions", f"task.path='{log}'", PREFER, *SMALL]
    assert main(["fit", *words, "trainer.max_epochs=1", f"run_dir='{tmp_path}/run'"]) == 0
    assert len((tmp_path / "run/preferences.jsonl").read_text().splitlines()) == 20


def test_own_pictures_need_somebody_who_sees_them(log, tmp_path, capsys):
    words = ["recipe=offline_rl_vlm_f", "setting=transitions", f"task.path='{log}'", *SMALL]
    assert main(["fit", *words, "trainer.max_epochs=1", f"run_dir='{tmp_path}/run'"]) != 0
    assert "the recording has none; name one that sees the frames" in " ".join(capsys.readouterr().err.split())


def test_a_resumed_run_has_the_same_rewards(tmp_path):
    words = ("recipe=offline_rl_vlm_f", "data.log.num_episodes=3", "data.evaluation=null")
    whole = fit(tmp_path / "whole", *words, "trainer.max_epochs=2")
    replay = whole.datamodule.replay
    assert replay.num_transitions == 3 * 19 and "replay" not in whole.datamodule.state_dict()
    # no observation after the last of 20 actions is recorded, so that it is left out
    assert replay.storage.columns["reward"].min() == 0 and replay.storage.columns["reward"].max() == 1
    first = ("trainer.max_epochs=1", "trainer.callbacks.last.every_n_epochs=1")
    half = fit(tmp_path / "part", *words, *first)
    assert half.datamodule.metrics["relabelling/pairs"] == 16
    checkpoint = next((tmp_path / "part").rglob("last.ckpt"))
    resumed = fit(tmp_path / "part", *words, "trainer.max_epochs=2", f"ckpt_path='{checkpoint}'")
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name


def test_a_log_is_a_function_of_the_seed():
    task = SimTask(TwoDiscs(steps=4))
    logs = [PlayedLog(3, 0.3).play(task, seed) for seed in (0, 0, 1)]
    first, again, other = (log[1] for log in logs)
    assert len(logs[0]) == 3 and (first.actions == again.actions).all() and (first.actions != other.actions).any()
    assert {log[i].seed for log in logs[:1] for i in range(3)}.isdisjoint(logs[2][i].seed for i in range(3))
    assert first.truncated and not first.terminated
    assert logs[0].features["image"].camera and logs[0].features["action"].shape == (2,)


def test_what_cannot_be_relabelled_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"sim 'point' has no method behavior\(seeds, noise\).*data\.path=FILE"):
        PlayedLog().play(SimTask(PointSim()), 0)
    with pytest.raises(ValueError, match=r"data\.relabelling gives .*data\.collect_from=1.*data\.collect_from=null"):
        fit(tmp_path / "run", "recipe=offline_rl_vlm_f", "data.collect_from=1")
