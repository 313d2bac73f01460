"""LeRobotDatasets v2.1 that lerobot 0.3.3 has written (tests/datasets/lerobot_v21) become v3.0.

Each has two episodes of 4 and 3 control steps at 10 per second. Of step t of episode e the action is [e, t], the
picture is 16 x 16 pixels of brightness 40 t + e, and the states are the draws of numpy's generator 0, in order.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from mmrl.__main__ import main
from mmrl.datasets.formats import open_dataset
from mmrl.datasets.lerobot.older import OlderLeRobot, convert

SOURCES = Path(__file__).parent / "lerobot_v21"
LENGTHS = (4, 3)
TABLE = "data/chunk-000/episode_000001.parquet"
VIDEO = "videos/chunk-000/observation.images.front/episode_000001.mp4"


@pytest.fixture
def source(tmp_path):
    """A copy that may be changed."""
    return lambda kind="image": shutil.copytree(SOURCES / kind, tmp_path / "source")


@pytest.mark.parametrize("kind", ["image", "video"])
@pytest.mark.parametrize("version", ["v2.0", "v2.1"])
def test_every_number_and_picture_is_there(source, tmp_path, capsys, kind, version):
    folder = source(kind)
    change(folder / "meta/info.json", codebase_version=version)
    assert main(["data", "convert", str(folder), f"out={tmp_path / 'new'}"]) == 0
    assert "2 episodes, 7 control steps" in capsys.readouterr().out
    dataset = open_dataset(tmp_path / "new")
    assert dataset.fps == 10 and dataset.lengths() == list(LENGTHS)
    states = np.random.default_rng(0).standard_normal((7, 3)).astype(np.float32)
    for number, (first, length) in enumerate(zip((0, 4), LENGTHS)):
        seen = dataset.read(number)
        assert seen.instruction == ("push the block", "lift the block")[number]
        assert (seen.observations["state"] == states[first : first + length]).all()
        assert seen.actions.tolist() == [[number, t] for t in range(length)]
        for t in range(length):
            picture = np.asarray(seen.observations["front"][t])
            assert picture.shape == (16, 16, 3)
            assert np.abs(picture.astype(float) - (40 * t + number)).max() <= (3 if kind == "video" else 0)
    # the statistics are those of the numbers, not of the episodes' own
    actions = np.array([[e, t] for e, length in enumerate(LENGTHS) for t in range(length)], float)
    np.testing.assert_allclose(dataset.statistics()["action"]["mean"], actions.mean(0), rtol=1e-6)
    np.testing.assert_allclose(dataset.statistics()["action"]["std"], actions.std(0), rtol=1e-6)
    assert dataset.statistics()["front"]["mean"].ravel() == pytest.approx(
        np.mean([40 * t + e for e, length in enumerate(LENGTHS) for t in range(length)]) / 255, abs=3 / 255
    )


def test_files_are_copied_byte_by_byte(source, tmp_path):
    folder = source("video")
    convert(OlderLeRobot(folder), tmp_path / "new")
    pairs = {TABLE: "data/chunk-000/file-001.parquet", VIDEO: "videos/observation.images.front/chunk-000/file-001.mp4"}
    for old, new in pairs.items():
        assert (folder / old).read_bytes() == (tmp_path / "new" / new).read_bytes()


def test_episodes_fill_chunks_of_a_thousand_files(source, tmp_path):
    folder = source()
    rows = (folder / "meta/episodes.jsonl").read_text().splitlines()
    table = pq.read_table(folder / TABLE)
    with (folder / "meta/episodes.jsonl").open("w") as file:
        for number in range(1001):
            file.write(json.dumps({**json.loads(rows[1]), "episode_index": number}) + "\n")
            path = folder / f"data/chunk-{number // 300:03d}/episode_{number:06d}.parquet"
            path.parent.mkdir(exist_ok=True)
            if number not in (0, 1, 999, 1000):
                path.hardlink_to(folder / TABLE)
            else:
                numbers = [number] * 3
                at = table.column_names.index("episode_index")
                path.unlink(missing_ok=True)
                pq.write_table(table.set_column(at, "episode_index", [numbers]), path)
    change(folder / "meta/info.json", chunks_size=300, total_episodes=1001, total_frames=3003)
    convert(OlderLeRobot(folder), tmp_path / "new")
    dataset = open_dataset(tmp_path / "new")
    assert len(dataset) == 1001 and (tmp_path / "new/data/chunk-001/file-000.parquet").is_file()
    assert all(dataset.read(number).actions.tolist() == [[1, 0], [1, 1], [1, 2]] for number in (0, 999, 1000))


def change(path, **entries):
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


def edit(name, old, new):
    def apply(folder):
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return apply


def cut_last_line(path):
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def remove(name):
    return lambda folder: (folder / name).unlink()


REFUSED = {
    "v3.0": (edit("meta/info.json", '"v2.1"', '"v3.0"'), "info.json: codebase_version is 'v3.0'.*read as they are"),
    "v1.6": (edit("meta/info.json", '"v2.1"', '"v1.6"'), "info.json: codebase_version is 'v1.6'; v2.0 and v2.1"),
    "no tasks": (remove("meta/tasks.jsonl"), "tasks.jsonl is missing"),
    "no episodes": (remove("meta/episodes.jsonl"), "episodes.jsonl is missing"),
    "a line is no JSON": (edit("meta/episodes.jsonl", "{", "("), "episodes.jsonl, line 1: no JSON"),
    "a line is a list": (edit("meta/tasks.jsonl", '{"task_index', '[]\n{"task_index'), "tasks.jsonl, line 1: must be"),
    "a length is a text": (edit("meta/episodes.jsonl", '"length": 4', '"length": "4"'), "line 1: length is '4'"),
    "a length is true": (edit("meta/episodes.jsonl", '"length": 4', '"length": true'), "line 1: length is True"),
    "a number twice": (edit("meta/episodes.jsonl", 'index": 1', 'index": 0'), "must be numbered 0, 1, 2"),
    "a length too small": (
        lambda folder: [
            edit("meta/episodes.jsonl", '"length": 3', '"length": 2')(folder),
            edit("meta/info.json", '"total_frames": 7', '"total_frames": 6')(folder),
        ],
        "has 3 rows.* says 2 of episode 1",
    ),
    "a table is missing": (remove(TABLE), "episode_000001.parquet of episode 1 is missing"),
    "a table is cut": (lambda folder: (folder / TABLE).write_bytes(b"PAR1"), "not a readable parquet file"),
    "another folder": (edit("meta/info.json", '"data/chunk', '"../data/chunk'), "leaves the folder"),
    "an attribute": (edit("meta/info.json", "{episode_index:06d}", "{episode_index.real}"), "its fields may be"),
    "a field of v3": (edit("meta/info.json", "{episode_index:06d}", "{file_index:06d}"), "its fields may be"),
    "an episode is lost": (
        lambda folder: cut_last_line(folder / "meta/episodes.jsonl"),
        "info.json: total_episodes is 2, meta/episodes.jsonl has 1",
    ),
    "other counts": (edit("meta/info.json", '"total_frames": 7', '"total_frames": 9'), "total_frames is 9, .* has 7"),
    "a text twice": (edit("meta/tasks.jsonl", "lift", "push"), "tasks.jsonl: each text and each task_index"),
    "an index twice": (edit("meta/tasks.jsonl", 'index": 1', 'index": 0'), "each text and each task_index"),
    "a large index": (edit("meta/tasks.jsonl", 'index": 1', f'index": {2**70}'), "each text and each task_index"),
    "a task is a number": (edit("meta/episodes.jsonl", '["lift the block"]', "[3]"), r"tasks of episode 1 are \[3\]"),
    "a chunk of a half": (edit("meta/info.json", '"chunks_size": 1000', '"chunks_size": 0.5'), "chunks_size is 0.5"),
    "a chunk of 0": (edit("meta/info.json", '"chunks_size": 1000', '"chunks_size": 0'), "chunks_size is 0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_broken_is_refused_by_its_place_and_nothing_is_written(source, tmp_path, case):
    spoil, message = REFUSED[case]
    folder = source()
    spoil(folder)
    with pytest.raises(ValueError, match=message):
        convert(OlderLeRobot(folder), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_empty_lines_are_no_rows(source, tmp_path):
    folder = source()
    with (folder / "meta/episodes.jsonl").open("a") as file:
        file.write("\n\n")
    convert(OlderLeRobot(folder), tmp_path / "new")
    assert open_dataset(tmp_path / "new").lengths() == [4, 3]


def test_what_fails_while_it_is_read_again_leaves_nothing_behind(source, tmp_path, capsys):
    folder = source()
    (folder / "meta/tasks.jsonl").write_text('{"task_index": 0, "task": "push the block"}\n')
    for _ in range(2):  # the second try meets no folder
        assert main(["data", "convert", str(folder), f"out={tmp_path / 'new'}"]) == 1
        assert "task_index 1 is not in" in capsys.readouterr().err and not (tmp_path / "new").exists()
    (tmp_path / "file").write_text("")
    assert main(["data", "convert", str(SOURCES / "image"), f"out={tmp_path / 'file' / 'x'}"]) == 2
    assert "out: " in capsys.readouterr().err


def test_a_video_that_is_missing_and_a_folder_that_is_not_empty_are_refused(source, tmp_path):
    folder = source("video")
    (tmp_path / "new").mkdir()
    (tmp_path / "new/notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"new is not empty"):
        convert(OlderLeRobot(folder), tmp_path / "new")
    (folder / VIDEO).unlink()
    with pytest.raises(ValueError, match=r"episode_000001\.mp4 of episode 1 is missing"):
        convert(OlderLeRobot(folder), tmp_path / "other")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give one dataset and out=FOLDER"),
        (["one", "two", "out=x"], "give one dataset and out=FOLDER"),
        (["."], "give one dataset and out=FOLDER"),
        ([".", "out=x", "rate=3"], "unknown option rate=3"),
        ([".", "out=x"], "has no meta/info.json"),
    ],
)
def test_wrong_words_are_refused(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    assert main(["data", "convert", *words]) == 2
    assert message in capsys.readouterr().err
