"""LeRobotDataset v3.0: what is written is read back equal, lies where others look for it, is refused when broken."""

import json
import pickle
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mmrl.datasets.formats import open_dataset
from mmrl.datasets.frames import VideoFrames
from mmrl.datasets.lerobot import layout
from mmrl.datasets.lerobot.reader import LeRobotDataset
from mmrl.datasets.statistics import compute_statistics, find_anomalies
from tests.datasets.episodes import CONTRACT, episode, write

LENGTHS = (7, 13, 1, 20)
DATA, VIDEO = "data/chunk-000/file-000.parquet", "videos/observation.images.image/chunk-000/file-000.mp4"


def episodes():
    return [episode(steps, seed, success=seed != 1) for seed, steps in enumerate(LENGTHS)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    base = tmp_path_factory.mktemp("datasets")
    return {video: write(base / str(video), episodes(), video) for video in (False, True)}


@pytest.fixture
def broken(folders, tmp_path):
    """A copy that may be broken."""

    def copy(video=False):
        return shutil.copytree(folders[video], tmp_path / "broken")

    return copy


def change(path, **columns):
    """Write a table again with some columns replaced, or taken away where None."""
    table = pq.read_table(path)
    for name, values in columns.items():
        name = name.replace("__", ".")
        at = table.column_names.index(name)
        table = table.remove_column(at)
        if values is not None:
            table = table.add_column(at, name, values)
    pq.write_table(table, path)


@pytest.mark.parametrize("video", [False, True], ids=["png", "video"])
def test_what_was_written_is_read_in_any_order(folders, video):
    dataset, written = open_dataset(folders[video]), episodes()
    assert isinstance(dataset, LeRobotDataset) and len(dataset) == 4 and dataset.fps == 20
    assert dataset.contract == CONTRACT and dataset.lengths() == list(LENGTHS)
    assert [dataset.success(n) for n in range(4)] == [True, False, True, True]
    for number in (3, 0, 2, 1):
        was, now = written[number], dataset[number]
        for name in ("actions", "rewards"):
            assert getattr(was, name).dtype == getattr(now, name).dtype
            np.testing.assert_array_equal(getattr(was, name), getattr(now, name))
        np.testing.assert_array_equal(was.observations["proprio"], now.observations["proprio"])
        for name in ("instruction", "terminated", "truncated", "success", "seed", "ended"):
            assert getattr(was, name) == getattr(now, name), name
        images = now.observations["image"]
        assert images.shape == was.observations["image"].shape
        away = np.abs(np.asarray(images).astype(int) - was.observations["image"])
        assert away.max() == 0 if not video else away.mean() < 3  # 8-bit colours at half resolution, quality 18
        np.testing.assert_array_equal(images[len(was) - 1], np.asarray(images)[-1])


def test_frames_of_a_video_are_those_of_their_control_steps(folders):
    """Neighbouring frames differ by 2 of 255; the mean of every frame must be its own, not its neighbour's."""
    for number, was in enumerate(episodes()):
        now = np.asarray(LeRobotDataset(folders[True])[number].observations["image"])
        away = now.mean((1, 2, 3)) - was.observations["image"].mean((1, 2, 3))
        assert np.abs(away - away.mean()).max() < 0.6


def test_a_video_is_decoded_when_it_is_looked_at(folders, monkeypatch):
    decoded = []
    inner = VideoFrames._all
    monkeypatch.setattr(VideoFrames, "_all", lambda self: decoded.append(self.start_s) or inner(self))
    dataset = LeRobotDataset(folders[True])
    seen = dataset[1]
    assert decoded == []
    assert seen.observations["image"][3:5].shape == (2, 32, 32, 3) and decoded == [7 / 20]
    again = pickle.loads(pickle.dumps(dataset))
    np.testing.assert_array_equal(again[0].actions, dataset[0].actions)


def test_it_lies_where_others_look_for_it(folders):
    """The names of codebase version v3.0."""
    root = folders[True]
    info = json.loads((root / "meta/info.json").read_text())
    assert info["codebase_version"] == "v3.0" and info["fps"] == 20
    assert (info["total_episodes"], info["total_frames"], info["total_tasks"]) == (4, 41, 2)
    assert info["splits"] == {"train": "0:4"} and info["chunks_size"] == 1000
    assert info["data_path"] == "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
    assert info["video_path"] == "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
    image = info["features"]["observation.images.image"]
    assert image == {"dtype": "video", "shape": [32, 32, 3], "names": ["height", "width", "channels"]}
    for key in ("observation.state", "action", *layout.INDEX, *layout.OUTCOME):
        assert key in info["features"], key
    table = pq.read_table(root / DATA)
    assert set(table.column_names) == set(info["features"]) - {"observation.images.image"}
    assert table.schema.field("action").type == pa.list_(pa.float32(), 3)
    assert table.schema.field("timestamp").type == pa.float32() and table.schema.field("next.done").type == pa.bool_()
    assert table["index"].to_pylist() == list(range(41))
    assert table["next.done"].to_pylist().count(True) == 4 and table["next.truncated"].to_pylist().count(True) == 1
    tasks = pq.read_table(root / "meta/tasks.parquet")
    assert tasks["task"].to_pylist() == ["reach the red cube", "reach the blue cube"]
    assert json.loads(tasks.schema.metadata[b"pandas"])["index_columns"] == ["task"]
    entry = pq.read_table(root / "meta/episodes/chunk-000/file-000.parquet").to_pylist()[1]
    assert (entry["dataset_from_index"], entry["dataset_to_index"], entry["length"]) == (7, 20, 13)
    assert entry["tasks"] == ["reach the blue cube"] and entry["data/file_index"] == 0
    camera = "videos/observation.images.image"
    assert (entry[f"{camera}/from_timestamp"], entry[f"{camera}/to_timestamp"]) == (7 / 20, 1.0)
    np.testing.assert_allclose(entry["stats/action/max"], episodes()[1].actions.max(0))
    stats = json.loads((root / "meta/stats.json").read_text())
    assert np.shape(stats["observation.images.image"]["mean"]) == (3, 1, 1)
    assert {"min", "max", "mean", "std", "count", "q01", "q10", "q50", "q90", "q99"} == set(stats["action"])


def test_statistics_are_those_of_the_data(folders):
    actions = np.concatenate([e.actions for e in episodes()]).astype(np.float64)
    dataset = LeRobotDataset(folders[False])
    for result in (dataset.statistics()["action"], compute_statistics(dataset)["action"]):
        np.testing.assert_allclose(result["mean"], actions.mean(0))
        np.testing.assert_allclose(result["std"], actions.std(0))
        np.testing.assert_allclose(result["q99"], np.quantile(actions, 0.99, axis=0))
        assert result["count"] == [41]


def test_suspicious_dimensions_are_named():
    rng = np.random.default_rng(0)
    hand = rng.choice([0.0, 1.0], 1000)
    tail = rng.normal(size=1000)
    tail[0] = 100
    odd = rng.normal(size=1000)
    odd[3] = np.nan
    rest = rng.choice([-1.0, 0.0, 1.0], 1000)
    columns = [rng.uniform(-1, 1, 1000), np.full(1000, 0.3), hand, rest, tail, odd]
    hands = ["gripper-like"]
    assert find_anomalies(np.column_stack(columns)) == [
        [],
        ["zero range"],
        hands,
        hands,
        ["long tail"],
        ["1 not finite"],
    ]


def test_large_files_are_split(tmp_path, monkeypatch):
    monkeypatch.setattr(layout, "DATA_MB", 1e-3)
    monkeypatch.setattr(layout, "VIDEO_MB", 1e-3)
    dataset = LeRobotDataset(write(tmp_path / "split", episodes(), video=True))
    assert len(list((tmp_path / "split/data/chunk-000").glob("*.parquet"))) > 1
    for number, was in enumerate(episodes()):
        np.testing.assert_array_equal(dataset[number].actions, was.actions)
        assert dataset[number].observations["image"][:].shape == was.observations["image"].shape


def edit(root, name, **values):
    path = root / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_another_version_is_refused_with_the_way_to_convert_it(broken):
    root = broken()
    edit(root, "meta/info.json", codebase_version="v2.1")
    with pytest.raises(
        ValueError, match=r"info\.json: codebase_version is 'v2\.1'.*convert it once: mmrl data convert"
    ):
        LeRobotDataset(root)


def test_a_wrong_rate_is_refused(broken):
    root = broken()
    edit(root, "meta/info.json", fps=10)
    with pytest.raises(ValueError, match=r"episode 0: control step 1 has timestamp 0\.0500 s, at fps=10.*about 20 per"):
        LeRobotDataset(root)[0]


def test_a_missing_column_is_refused(broken):
    root = broken()
    change(root / DATA, action=None)
    with pytest.raises(ValueError, match=r"file-000\.parquet: columns \['action'\].*missing"):
        LeRobotDataset(root)[0]


def test_numbers_that_are_not_finite_are_refused(broken):
    root = broken()
    rewards = pq.read_table(root / DATA)["next.reward"].to_numpy().copy()
    rewards[9] = np.nan
    change(root / DATA, next__reward=pa.array(rewards))
    dataset = LeRobotDataset(root)
    dataset[0]
    with pytest.raises(ValueError, match=r"episode 1: reward is not finite at control step 2"):
        dataset[1]


def test_missing_rows_are_refused(broken):
    root = broken()
    pq.write_table(pq.read_table(root / DATA).slice(0, 30), root / DATA)
    with pytest.raises(ValueError, match=r"episode 3: .*holds 9 rows of it, meta/episodes says 20"):
        LeRobotDataset(root)[3]


def test_a_video_that_is_too_short_is_refused(broken, tmp_path):
    root = broken(video=True)
    short = write(tmp_path / "short", episodes()[:3], video=True)
    shutil.copy(short / VIDEO, root / VIDEO)
    dataset = LeRobotDataset(root)
    assert dataset[2].observations["image"][0].shape == (32, 32, 3)
    with pytest.raises(ValueError, match=r"episode 3: .*file-000\.mp4 has 21 frames, the episode needs .* up to 41"):
        dataset[3]
    with pytest.raises(ValueError, match=r"file-000\.mp4: the video is too short: 0 of 20 frames"):
        VideoFrames(root / VIDEO, 21 / 20, 20, 20, (32, 32, 3))[0]


def test_a_video_that_was_cut_is_refused(broken):
    root = broken(video=True)
    (root / VIDEO).write_bytes((root / VIDEO).read_bytes()[:500])
    with pytest.raises(ValueError, match=r"file-000\.mp4: not a readable video"):
        LeRobotDataset(root)[0]


@pytest.mark.parametrize("name", ["meta/tasks.parquet", DATA])
def test_a_missing_file_is_refused(broken, name):
    root = broken()
    (root / name).unlink()
    with pytest.raises(ValueError, match=f"{name} is missing"):
        LeRobotDataset(root)[0]


def test_missing_statistics_are_refused(broken):
    root = broken()
    (root / "meta/stats.json").unlink()
    with pytest.raises(ValueError, match=r"stats\.json is missing; `mmrl data inspect .* write=true` computes it"):
        LeRobotDataset(root).statistics()


def test_episodes_of_another_shape_and_a_full_folder_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"action is \(2,\) per step, in the first episode \(3,\)"):
        write(tmp_path / "a", [episode(3, 0), episode(3, 1, actions=np.zeros((3, 2), np.float32))])
    with pytest.raises(ValueError, match="is not empty"):
        write(tmp_path / "a", [episode(3, 0)])


def test_every_control_step_has_its_own_instruction(tmp_path):
    """Long recordings pose a new task while the robot goes on."""
    texts = ("open the drawer",) * 3 + ("take the cup",) * 4
    changing = episode(7, 0, instruction=texts[0], instructions=texts)
    dataset = open_dataset(write(tmp_path, [changing, episode(5, 1)]))
    assert [dataset[0].raw(step)["instruction"] for step in range(7)] == list(texts)
    assert [decision.raw["instruction"] for decision in dataset[0].decisions(2)] == [texts[i] for i in (0, 2, 4, 6)]
    assert dataset[0].texts == ["open the drawer", "take the cup"] and dataset[1].instructions == ()
    table = pq.read_table(tmp_path / DATA)
    named = dict(enumerate(["open the drawer", "take the cup", "reach the blue cube"]))
    assert [named[i] for i in table["task_index"].to_pylist()] == [*texts, *["reach the blue cube"] * 5]
    rows = [2, 99, *table["task_index"].to_pylist()[2:]]
    change(tmp_path / DATA, task_index=pa.array(rows))
    with pytest.raises(ValueError, match=r"episode 0: task_index 99 is not in meta/tasks"):
        open_dataset(tmp_path)[0]
