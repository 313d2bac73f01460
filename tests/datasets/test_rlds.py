"""RLDS that TensorFlow Datasets 4.9 has written (tests/datasets/rlds) becomes a LeRobotDataset, without TensorFlow.

`vector` and `parts` have the same episodes: two in train, of 4 and 3 steps, and the first of them again in val. Of step
t of episode e the action is [e, t] (in `parts`: move [e, t] and grip t % 2), the picture 16 x 16 pixels of brightness
40 t + e, gripper t / 2, matrix [[e, t], [t, e]], and the states are the draws of numpy's generator 0, in order.
"""

import json
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

from mmrl.__main__ import main
from mmrl.datasets.formats import open_dataset
from mmrl.datasets.rlds.folder import FEATURES, RldsFolder
from mmrl.datasets.rlds.records import _checksum, read_records

SOURCES = Path(__file__).parent / "rlds"
LENGTHS = (4, 3)


@pytest.fixture
def source(tmp_path):
    """A copy that may be changed."""
    return lambda kind="vector": shutil.copytree(SOURCES / kind, tmp_path / "source")


def shard(folder):
    return next(folder.glob("*-train.tfrecord*"))


@pytest.mark.parametrize("video", [False, True])
def test_every_number_and_picture_is_there(tmp_path, capsys, video):
    words = [str(SOURCES / "vector"), f"out={tmp_path / 'new'}", "fps=5", f"video={str(video).lower()}"]
    assert main(["data", "convert", *words]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "not read: language_embedding, observation/depth" in out and "2 episodes, 7 control steps" in out
    dataset = open_dataset(tmp_path / "new")
    assert dataset.fps == 5 and dataset.lengths() == list(LENGTHS)
    states = np.random.default_rng(0).standard_normal((7, 3)).astype(np.float32)
    for number, (first, length) in enumerate(zip((0, 4), LENGTHS)):
        seen = dataset.read(number)
        assert seen.instruction == ("push the block", "lift the block")[number]
        assert (seen.observations["state"] == states[first : first + length]).all()
        assert seen.actions.tolist() == [[number, t] for t in range(length)] and seen.actions.dtype == np.float32
        assert seen.observations["gripper"].ravel().tolist() == [t / 2 for t in range(length)]
        assert seen.observations["matrix"].tolist() == [[[number, t], [t, number]] for t in range(length)]
        assert seen.rewards.tolist() == [0.0] * (length - 1) + [1.0]
        assert (seen.terminated, seen.truncated) == (number == 0, number == 1)
        for t in range(length):
            picture = np.asarray(seen.observations["image"][t]).astype(float)
            assert picture.shape == (16, 16, 3)
            assert np.abs(picture - (40 * t + number)).max() <= (3 if video else 0)


def test_parts_of_an_action_are_joined_in_the_order_that_is_given(tmp_path):
    folder = RldsFolder(SOURCES / "parts", "train", ["grip", "move"])
    assert [episode.actions.tolist() for episode in folder] == [
        [[t % 2, number, t] for t in range(length)] for number, length in enumerate(LENGTHS)
    ]
    with pytest.raises(ValueError, match=r"steps/action is no vector.*'action/grip', 'action/move'.*action=PART,PART"):
        RldsFolder(SOURCES / "parts")
    with pytest.raises(ValueError, match=r"steps/action/turn is no vector"):
        RldsFolder(SOURCES / "parts", "train", ["move", "turn"])


def test_another_split(tmp_path):
    assert [len(episode) for episode in RldsFolder(SOURCES / "vector", "val")] == [4]
    with pytest.raises(ValueError, match=r"no split 'test'; its files of records have \['train', 'val'\]"):
        RldsFolder(SOURCES / "vector", "test")


def test_the_checksum_is_crc32c():
    # "123456789" has the CRC32C e3069283 (RFC 3720, B.4, gives others of the same polynomial); the mask by hand
    crc = 0xE3069283
    assert _checksum(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32


def change(folder, *path, to):
    described = json.loads((folder / FEATURES).read_text())
    entry = described
    for name in path[:-1]:
        entry = entry[name]
    entry[path[-1]] = to
    (folder / FEATURES).write_text(json.dumps(described))


STEPS = ("featuresDict", "features", "steps", "sequence", "feature", "featuresDict", "features")


def cut(count):
    return lambda folder: shard(folder).write_bytes(shard(folder).read_bytes()[:count])


def flip(at):
    def apply(folder):
        content = bytearray(shard(folder).read_bytes())
        content[at] ^= 0x40
        shard(folder).write_bytes(bytes(content))

    return apply


def nonsense(folder):
    head = struct.pack("<Q", 5)
    shard(folder).write_bytes(head + struct.pack("<I", _checksum(head)) + b"\xff" * 5 + b"0000")


REFUSED = {
    "no description": (lambda folder: (folder / FEATURES).write_text("[]"), "an object with named entries"),
    "no steps": (lambda folder: change(folder, "featuresDict", "features", "steps", to=3), "steps: must be an object"),
    "a size that varies": (
        lambda folder: change(folder, *STEPS, "action", "tensor", "shape", "dimensions", to=["-1"]),
        "steps/action: shape .* sizes that vary",
    ),
    "another size": (
        lambda folder: change(folder, *STEPS, "action", "tensor", "shape", "dimensions", to=["5"]),
        r"record 0: steps/action has 8 values, features.json says \[5\] in each step",
    ),
    "another name": (
        lambda folder: change(folder, *STEPS, "reward2", to={"tensor": {"dtype": "float32"}}) or rename(folder),
        "record 0: steps/reward of features.json is missing",
    ),
    "a head that is cut": (cut(7), "record 0 is cut"),
    "a record that is cut": (cut(600), "record 0 is cut"),
    "a length that is damaged": (flip(2), "record 0 is damaged, or this is no TFRecord file"),
    "a file is missing": (
        lambda folder: shard(folder).rename(str(shard(folder)).replace("-of-00001", "-of-00003")),
        "1 of the 3 files of split 'train' are there",
    ),
    "a record is missing": (
        lambda folder: edit_text(folder / "dataset_info.json", '"2"', '"3"'),
        "train.tfrecord-00000-of-00001 has 2 records, dataset_info.json says 3",
    ),
    "no example": (nonsense, "record 0: no tf.train.Example"),
}


def edit_text(path, old, new):
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))


def rename(folder):
    content = shard(folder).read_bytes()
    first = next(read_records(shard(folder)))
    changed = first.replace(b"steps/reward", b"steps/rewerd")
    assert content[12 : 12 + len(first)] == first
    shard(folder).write_bytes(content[:12] + changed + content[12 + len(first) :])


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_broken_is_refused_by_file_and_record(source, case):
    spoil, message = REFUSED[case]
    folder = source()
    spoil(folder)
    with pytest.raises(ValueError, match=message):
        list(RldsFolder(folder))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "RLDS does not state the control steps per second: give fps=NUMBER"),
        (["fps=0"], "fps=0: must be at least 0.001"),
        (["fps=5", "split=test"], "no split 'test'"),
        (["fps=5", "action=move"], "steps/action/move is no vector"),
        (["fps=5", "video=yes"], "video=yes: must be true or false"),
    ],
)
def test_wrong_words_are_refused_before_anything_is_written(tmp_path, capsys, words, message):
    assert main(["data", "convert", str(SOURCES / "vector"), f"out={tmp_path / 'new'}", *words]) in (1, 2)
    assert message in capsys.readouterr().err and not (tmp_path / "new").exists()
