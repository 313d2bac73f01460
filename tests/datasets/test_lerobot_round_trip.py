"""Datasets between mmrl and the package lerobot, where it is installed: each reads what the other writes."""

from importlib.metadata import version

import numpy as np
import pytest
import torch
import torchvision
from torch.testing import assert_close

from mmrl.datasets.formats import open_dataset
from tests.datasets.episodes import episode, write

LENGTHS = (7, 5)


@pytest.fixture
def original(monkeypatch):
    """LeRobotDataset of lerobot, which is not to ask the hub."""
    pytest.importorskip("lerobot")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    return LeRobotDataset


def build_episodes() -> list:
    return [episode(steps, seed) for seed, steps in enumerate(LENGTHS)]


@pytest.mark.parametrize("video", [False, True], ids=["png", "video"])
def test_lerobot_reads_what_mmrl_writes(tmp_path, original, video):
    """Every frame, the tasks, the statistics, and chunks of actions as lerobot's policies ask for them."""
    if video and not hasattr(torchvision.io, "VideoReader") and version("lerobot") < "0.5":
        pytest.skip("lerobot 0.4 reads videos with torchvision.io.VideoReader, which this torchvision does not have")
    folder = write(tmp_path / "set", build_episodes(), video)
    chunk = [t / 20 for t in range(4)]
    dataset = original("mmrl/set", root=folder, delta_timestamps={"action": chunk}, video_backend="pyav")
    assert (dataset.num_episodes, dataset.num_frames, dataset.fps) == (2, 12, 20)
    assert set(dataset.meta.tasks.index) == {"reach the red cube", "reach the blue cube"}
    frames = [(one, t) for one in build_episodes() for t in range(len(one))]
    for index, (was, step) in enumerate(frames):
        row = dataset[index]
        assert row["task"] == was.instruction and int(row["frame_index"]) == step
        assert_close(row["observation.state"], torch.from_numpy(was.observations["proprio"][step]))
        image = row["observation.images.image"].movedim(0, -1).numpy() * 255
        assert np.abs(image - was.observations["image"][step]).mean() < (3 if video else 0.01)
        at = np.minimum(np.arange(step, step + 4), len(was) - 1)
        assert_close(row["action"], torch.from_numpy(was.actions[at]))
        assert row["action_is_pad"].tolist() == (np.arange(step, step + 4) >= len(was)).tolist()
    actions = np.concatenate([one.actions for one in build_episodes()])
    assert_close(torch.as_tensor(dataset.meta.stats["action"]["mean"]).float(), torch.from_numpy(actions.mean(0)))
    assert_close(torch.as_tensor(dataset.meta.stats["action"]["max"]).float(), torch.from_numpy(actions.max(0)))


def test_mmrl_reads_what_lerobot_writes(tmp_path, original):
    features = {
        "observation.state": {"dtype": "float32", "shape": (5,), "names": [f"joint{i}" for i in range(5)]},
        "observation.images.front": {"dtype": "image", "shape": (32, 32, 3), "names": ["height", "width", "channels"]},
        "action": {"dtype": "float32", "shape": (3,), "names": ["x", "y", "z"]},
    }
    dataset = original.create("mmrl/other", 20, features, root=tmp_path / "set", use_videos=False)
    for one in build_episodes():
        for step in range(len(one)):
            seen = {"observation.state": "proprio", "observation.images.front": "image"}
            frame = {name: one.observations[own][step] for name, own in seen.items()}
            dataset.add_frame({**frame, "action": one.actions[step], "task": one.instruction})
        dataset.save_episode()
    dataset.finalize()
    again = open_dataset(tmp_path / "set")
    again.check()
    assert again.lengths() == list(LENGTHS) and again.fps == 20
    for number, was in enumerate(build_episodes()):
        now = again[number]
        assert now.instruction == was.instruction
        np.testing.assert_array_equal(now.actions, was.actions)
        np.testing.assert_array_equal(now.observations["state"], was.observations["proprio"])
        np.testing.assert_array_equal(np.asarray(now.observations["front"]), was.observations["image"])
    mean = np.concatenate([one.actions for one in build_episodes()]).mean(0)
    np.testing.assert_allclose(again.statistics()["action"]["mean"], mean, atol=1e-6)
