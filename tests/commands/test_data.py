"""`mmrl data`: what is said, what is written, and how words that cannot be used are refused."""

import json

import numpy as np
import pytest
from PIL import Image

from mmrl.__main__ import main
from mmrl.config.compose import compose
from mmrl.datasets.formats import open_dataset
from mmrl.datasets.lerobot import layout
from mmrl.datasets.recording import record
from mmrl.policies.base import Policy
from sims.tabletop.sims import Reach
from tests.datasets.episodes import episode, write

SHORT = dict(image_size=16, chunk=3, max_decisions=3)  # nine control steps: the script often needs more


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded") / "reach"
    words = [*(f"sim.{name}={value}" for name, value in SHORT.items()), "num_episodes=6", f"out={folder}", "noise=0.2"]
    assert main(["data", "record", "sim=reach", *words, "video=false"]) == 0
    return folder


def read_output(capsys):
    return " ".join(capsys.readouterr().out.split())


def test_without_words_it_explains_itself(capsys):
    assert main(["data"]) == 0
    assert "mmrl data record sim=reach" in (text := capsys.readouterr().out) and "mmrl data inspect FOLDER" in text


def test_the_experts_episodes_with_their_failures(recorded, capsys):
    """Nine control steps are too few for some goals: what failed is there, flagged and cut off."""
    dataset = open_dataset(recorded)
    sim = Reach(**SHORT)
    assert len(dataset) == 6 and dataset.fps == 20
    assert dataset.contract == json.loads(json.dumps(sim.contract()))
    flagged = [dataset.success(n) for n in range(6)]
    assert True in flagged and False in flagged
    for number, success in enumerate(flagged):
        seen = dataset[number]
        assert seen.terminated is success and seen.truncated is not success and len(seen) <= 9
        assert seen.rewards.sum() == success and seen.seed is not None
        away = (seen.executed - seen.actions).std()
        assert 0.1 < away < 0.35  # about 27 draws of std 0.2
        env = sim.make(1)
        first, _ = env.reset(seed=[seen.seed])
        np.testing.assert_array_equal(seen.observations["image"][0], first["image"][0])
        np.testing.assert_array_equal(seen.observations["proprio"][0], first["proprio"][0])
        assert seen.instruction == first["instruction"][0]
        env.close()


def test_what_was_executed_leads_where_the_recording_says(recorded):
    """Playing the executed actions again, in chunks of three, passes through the recorded states."""
    dataset, sim = open_dataset(recorded), Reach(**SHORT)
    seen = dataset[int(np.argmax(dataset.lengths()))]
    env = sim.make(1)
    env.reset(seed=[seen.seed])
    observation, *_ = env.step(seen.executed[None, :3])
    np.testing.assert_allclose(observation["proprio"][0], seen.observations["proprio"][3], atol=1e-6)
    np.testing.assert_array_equal(observation["image"][0], seen.observations["image"][3])
    env.close()


def test_inspection_says_what_is_there(recorded, capsys, tmp_path):
    assert main(["data", "inspect", str(recorded), f"out={tmp_path}"]) == 0
    text = read_output(capsys)
    for part in (
        "LeRobotDataset v3.0",
        "episodes: 6",
        "fps: 20",
        "action[2]",
        "proprio[12]",
        '"sim": "tabletop-reach"',
    ):
        assert part in text, part
    assert f"failed: {sum(open_dataset(recorded).success(n) is False for n in range(6))}" in text
    with Image.open(tmp_path / "contact_sheet.png") as sheet:
        assert sheet.width > 800 and np.asarray(sheet).std() > 20


def test_inspection_refuses_rewards_that_are_no_numbers(capsys, tmp_path):
    """Two episodes of three steps; the second one's reward is not finite at its second step."""
    rewards = np.array([0, 0, 1, 0, np.nan, 1], np.float32)
    rows = {"observations": np.ones((6, 2), np.float32) * np.arange(6, dtype=np.float32)[:, None]}
    rows |= {"actions": np.zeros((6, 1), np.float32), "rewards": rewards, "terminals": np.arange(6) % 3 == 2}
    np.savez(tmp_path / "log.npz", **rows)
    assert main(["data", "inspect", str(tmp_path / "log.npz")]) == 1
    assert "reward: 1 numbers not finite or beyond 1e+09, first in" in (message := capsys.readouterr().err)
    assert "episode 1" in message


def test_inspection_names_what_is_wrong(capsys, tmp_path):
    actions = np.zeros((40, 3), np.float32)
    actions[:, 0], actions[20:, 1] = np.linspace(-1, 1, 40), 1
    root = write(tmp_path / "set", [episode(40, 0, actions=actions)])
    stats = json.loads((root / layout.STATS).read_text())
    stats["action"]["mean"][0] = 5
    (root / layout.STATS).write_text(json.dumps(stats))
    assert main(["data", "inspect", str(root)]) == 0
    text = read_output(capsys)
    assert "gripper-like" in text and "zero range" in text and "action[0]: stated mean 5, in the data" in text
    assert main(["data", "inspect", str(root), "write=true"]) == 0
    read_output(capsys)
    assert main(["data", "inspect", str(root)]) == 0 and "stated mean" not in read_output(capsys)


REFUSED = {
    "no simulator": (("record", "out=x"), 2, "sim=NAME"),
    "no place": (("record", "sim=reach"), 2, "out=FOLDER"),
    "no number": (("record", "sim=reach", "out=x", "num_episodes=many"), 2, "num_episodes=many"),
    "another format": (("record", "sim=reach", "out=x", "format=hdf5"), 2, "format=lerobot"),
    "a simulator without a script": (("record", "sim=gym", "sim.id=CartPole-v1", "out=x"), 2, "no scripted expert"),
    "another verb": (("join",), 2, "record, inspect and convert"),
    "a folder that is not there": (("inspect", "/no/such"), 1, "no such folder"),
    "two folders": (("inspect", "a", "b"), 2, "one dataset"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_words_that_cannot_be_used(name, capsys):
    words, status, part = REFUSED[name]
    assert main(["data", *words]) == status
    assert part in capsys.readouterr().err


def test_a_full_folder_is_not_written_to(recorded, capsys):
    assert main(["data", "record", "sim=reach", "num_episodes=1", f"out={recorded}"]) == 1
    assert "is not empty" in capsys.readouterr().err


def test_a_simulator_that_plays_several_control_steps_is_refused():
    with pytest.raises(ValueError, match="one control step per decision"):
        list(record(Reach(image_size=16), [0], lambda seeds: None))


def test_a_missing_dataset_is_refused_before_a_policy_is_built(tmp_path, monkeypatch, capsys):
    def build(*_, **__):
        raise AssertionError("a policy is built")

    monkeypatch.setattr(Policy, "__init__", build)
    words = ["recipe=bc", "rollout=offline", f"rollout.path={tmp_path}/nowhere", f"run_dir={tmp_path}/run"]
    assert main(["fit", *words, "sim=reach"]) == 2
    message = capsys.readouterr().err
    assert "rollout.path" in message and f"{tmp_path}/nowhere" in message
    assert not list((tmp_path / "run").glob("*.yaml"))


def test_a_policys_sizes_come_from_a_dataset_where_there_is_no_simulator(recorded):
    cfg = compose(["recipe=bc", "task=offline", "sim=null", f"task.path='{recorded}'", "rollout=offline"])
    assert (cfg.model.policy.action_dims, cfg.model.policy.chunk, cfg.model.policy.proprio_dims) == (3, 3, 13)
    assert cfg.data.rollout.path == str(recorded)


def test_cloning_from_what_was_recorded(recorded, tmp_path, capsys):
    small = ("policy.hidden_size=16", "policy.layers=1", "policy.heads=2", "trainer.accelerator=cpu")
    quiet = ("trainer.logger=false", "trainer.enable_progress_bar=false", "trainer.callbacks.progress=null")
    words = (*small, *quiet, "recipe=bc", "trainer.max_epochs=1", "data.num_prompts=2", "data.evaluation=null")
    words = (*words, "rollout=offline", "curriculum=shuffled", f"run_dir='{tmp_path}/run'")
    words = (*words, f"rollout.path='{recorded}'", f"policy.processor=${{normalised:'{recorded}',min_max}}")
    assert main(["fit", *words, *(f"sim.{name}={value}" for name, value in SHORT.items())]) == 0
    config = json.loads((tmp_path / "run/policy/config.json").read_text())
    statistics = open_dataset(recorded).statistics()["action"]
    np.testing.assert_allclose(config["processor"]["action"]["width"], (statistics["max"] - statistics["min"]) / 2)
    run = [f"run={tmp_path}/run", f"out={tmp_path}/again", "num_episodes=2", "decode=mean"]
    assert main(["data", "record", *run]) == 0, capsys.readouterr().err
    played = open_dataset(tmp_path / "again")
    assert len(played) == 2 and played.contract == open_dataset(recorded).contract


def test_a_missing_video_package_is_told_before_an_episode_is_recorded(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("mmrl.datasets.video_file.av", None)
    monkeypatch.setattr("mmrl.commands.datasets.record.record_episodes", lambda *_: pytest.fail("recorded"))
    words = ["sim=reach", "num_episodes=1", f"out={tmp_path / 'data'}"]
    assert main(["data", "record", *words]) == 2
    assert "a video of a dataset needs the package av: pip install 'mmrl-lightning[data]'" in capsys.readouterr().err


def test_dimensions_are_printed_with_the_names_of_the_recording(tmp_path, capsys):
    """Names in brackets are text, also where they look like the printer's own marks."""
    folder = write(tmp_path / "named", [episode(4, 0), episode(4, 1)])
    info = json.loads((folder / "meta/info.json").read_text())
    info["features"]["action"]["names"] = {"motors": ["shoulder.pos", "red", ":smile:"]}
    (folder / "meta/info.json").write_text(json.dumps(info))
    assert main(["data", "inspect", str(folder)]) == 0
    printed = read_output(capsys)
    assert all(f"action[{name}]" in printed for name in ("shoulder.pos", "red", ":smile:"))
