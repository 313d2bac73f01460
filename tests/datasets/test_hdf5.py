"""Minari's and robomimic's files, written by hand in their layouts."""

import json

import h5py
import numpy as np
import pytest

from mmrl.datasets.formats import open_dataset
from mmrl.datasets.minari import MinariDataset
from mmrl.datasets.robomimic import RobomimicDataset

RNG = np.random.default_rng(0)


@pytest.fixture
def minari(tmp_path):
    folder = tmp_path / "door" / "data"
    folder.mkdir(parents=True)
    with h5py.File(folder / "main_data.hdf5", "w") as file:
        for number in range(11):  # ten sorts before two by name
            steps, group = 4 + number, file.create_group(f"episode_{number}")
            group.attrs.update({"id": number, "seed": 100 + number, "total_steps": steps})
            seen = group.create_group("observations")
            seen["image"] = RNG.integers(0, 255, (steps + 1, 8, 8, 3)).astype(np.uint8)
            seen.create_group("robot")["pose"] = np.arange(steps + 1)[:, None] + np.zeros(3)
            seen.create_dataset("mission", data=["open the door"] * (steps + 1), dtype=h5py.string_dtype())
            group["actions"] = np.full((steps, 2), number, np.float64)
            group["rewards"] = np.ones(steps)
            group["terminations"] = np.arange(steps) == steps - 1 if number % 2 else np.zeros(steps, bool)
            group["truncations"] = np.zeros(steps, bool) if number % 2 else np.arange(steps) == steps - 1
            group.create_group("infos")["success"] = np.zeros(steps + 1, bool) | bool(number % 2)
    (folder / "metadata.json").write_text(json.dumps({"total_episodes": 11}))
    return tmp_path / "door"


def test_minari_episodes_in_their_order(minari):
    dataset = open_dataset(minari)
    assert isinstance(dataset, MinariDataset) and len(dataset) == 11 and dataset.fps is None
    assert {name: feature.shape for name, feature in dataset.features.items()} == {
        "image": (8, 8, 3),
        "robot.pose": (3,),
        "action": (2,),
    }
    for number in (10, 2):
        seen = dataset[number]
        assert len(seen) == 4 + number and (seen.actions == number).all() and seen.seed == 100 + number
        assert seen.instruction == "open the door" and seen.ended == ("done" if number % 2 else "time")
        assert seen.success is bool(number % 2)
        np.testing.assert_array_equal(seen.observations["robot.pose"][:, 0], np.arange(len(seen)))
        with h5py.File(minari / "data/main_data.hdf5") as file:
            stored = file[f"episode_{number}/observations/image"][:]
        np.testing.assert_array_equal(np.asarray(seen.observations["image"]), stored[:-1])
    np.testing.assert_allclose(dataset.statistics()["action"]["max"], [10, 10])


def test_minari_files_that_lack_something(minari):
    with h5py.File(minari / "data/main_data.hdf5", "a") as file:
        del file["episode_3/rewards"]
    dataset = MinariDataset(minari)
    with pytest.raises(ValueError, match=r"main_data\.hdf5/episode_3: 'rewards' is missing; it has \['actions'"):
        dataset[3]
    dataset.close()
    with h5py.File(minari / "data/main_data.hdf5", "a") as file:
        del file["episode_10"]
    with pytest.raises(ValueError, match=r"total_episodes is 11, main_data\.hdf5 has 10"):
        MinariDataset(minari)


@pytest.fixture
def robomimic(tmp_path):
    path = tmp_path / "lift.hdf5"
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["env_args"] = json.dumps({"env_name": "Lift", "type": 1, "env_kwargs": {"control_freq": 20}})
        data.attrs["problem_info"] = json.dumps({"language_instruction": ["lift", "the", "cube"]})
        for number in range(11):
            steps, demo = 3 + number, data.create_group(f"demo_{number}")
            demo.attrs["num_samples"] = steps
            for name in ("obs", "next_obs"):
                demo.create_group(name)["robot0_eef_pos"] = np.full((steps, 3), number, np.float64)
                demo[name]["agentview_image"] = np.full((steps, 8, 8, 3), number, np.uint8)
            demo["actions"] = np.zeros((steps, 7))
            demo["rewards"] = (np.arange(steps) == steps - 1) * float(number != 4)
            demo["dones"] = (np.arange(steps) == steps - 1).astype(np.int64)
            demo["states"] = np.zeros((steps, 32))
        file.create_group("mask")["valid"] = np.array([b"demo_10", b"demo_4"])
    return path


def test_robomimic_demonstrations(robomimic):
    dataset = open_dataset(robomimic)
    assert isinstance(dataset, RobomimicDataset) and len(dataset) == 11 and dataset.fps == 20
    seen = dataset[10]
    assert len(seen) == 13 and seen.instruction == "lift the cube" and seen.terminated and seen.success
    assert (seen.observations["robot0_eef_pos"] == 10).all() and (seen.observations["agentview_image"][5] == 10).all()
    assert dataset.success(4) is False
    valid = RobomimicDataset(robomimic, split="valid")
    assert [len(valid[n]) for n in range(len(valid))] == [7, 13]
    with pytest.raises(ValueError, match=r"no mask/test; there are \['valid'\]"):
        RobomimicDataset(robomimic, split="test")


def test_other_files_are_refused(tmp_path):
    (tmp_path / "a.hdf5").write_bytes(b"no")
    with pytest.raises(ValueError, match=r"a\.hdf5: not a readable HDF5 file"):
        open_dataset(tmp_path / "a.hdf5")
    with pytest.raises(ValueError, match="not a dataset that can be read here"):
        open_dataset(tmp_path)
    with pytest.raises(ValueError, match="no such folder"):
        open_dataset(tmp_path / "nothing")


def test_every_step_of_a_file_has_its_own_instruction(minari):
    with h5py.File(minari / "data" / "main_data.hdf5", "r+") as file:
        seen = file["episode_2"]["observations"]
        del seen["mission"]
        texts = [*["open the door"] * 2, *["close the door"] * 5]
        seen.create_dataset("mission", data=texts, dtype=h5py.string_dtype())
    recorded = open_dataset(minari)[2]
    assert [recorded.raw(step)["instruction"] for step in range(6)] == texts[:6]
    assert recorded.instruction == "open the door" and recorded.texts == ["open the door", "close the door"]
