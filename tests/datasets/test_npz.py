"""Flat arrays in .npz files: rows by their numbers, OGBench's ends, and what is refused."""

from __future__ import annotations

import zipfile

import numpy as np
import pytest

from mmrl.datasets.formats import open_dataset
from mmrl.datasets.npz.arrays import NpzArray, NpzFile
from tests.data.offline.recordings import arrays


@pytest.fixture(params=[np.savez, np.savez_compressed], ids=["stored", "compressed"])
def save(request):
    return request.param


def test_rows_by_slices_in_any_order(tmp_path, save, monkeypatch):
    """Against the array itself; pieces of 3 rows, so that slices begin within, at the border of and behind them."""
    monkeypatch.setattr("mmrl.datasets.npz.arrays._PIECE_BYTES", 3 * 8 * 4)
    rows = np.random.default_rng(0).normal(size=(40, 4))
    save(tmp_path / "log.npz", rows=rows, other=np.arange(5))
    array = NpzFile(tmp_path / "log.npz")["rows"]
    assert array.shape == (40, 4) and array.dtype == np.float64 and len(array) == 40
    for part in (slice(0, 2), slice(1, 4), slice(4, 9), slice(20, 21), slice(22, 40), slice(3, 5), slice(5, 5)):
        np.testing.assert_array_equal(array[part], rows[part])
    np.testing.assert_array_equal(array[:], rows)


def test_the_ends_of_ogbench(tmp_path, save):
    """Two trajectories of four and three states, as `terminals` = [0 0 0 1 0 0 1] marks them: none is terminal."""
    states = np.arange(14, dtype=np.float32).reshape(7, 2)
    terminals = np.array([0, 0, 0, 1, 0, 0, 1], np.float32)
    save(tmp_path / "maze.npz", observations=states, actions=np.ones((7, 1)), terminals=terminals, qpos=states)
    dataset = open_dataset(tmp_path / "maze.npz")
    assert dataset.lengths() == [4, 3] and dataset.features.keys() == {"state", "action"}
    for number, rows in ((1, slice(4, 7)), (0, slice(0, 4))):
        episode = dataset[number]
        np.testing.assert_array_equal(episode.observations["state"], states[rows])
        assert (episode.terminated, episode.truncated, episode.rewards, episode.final) == (False, True, None, None)
    dataset.close()
    assert len(dataset[0]) == 4  # opened again


def test_pictures_are_the_image(tmp_path, save):
    frames = np.random.default_rng(0).integers(0, 255, (5, 8, 8, 3)).astype(np.uint8)
    save(tmp_path / "seen.npz", observations=frames, actions=np.ones((5, 2)), terminals=np.eye(5)[4])
    dataset = open_dataset(tmp_path / "seen.npz")
    assert dataset.features["image"].camera
    np.testing.assert_array_equal(dataset[0].observations["image"], frames)


def test_names_of_d4rl_mean_the_same_as_in_hdf5(tmp_path, save):
    columns = arrays([3, 4, 2], ["done", "time", "cut"])
    save(tmp_path / "log.npz", **columns, next_observations=columns["observations"] + 1)
    episodes = list(open_dataset(tmp_path / "log.npz"))
    assert [episode.ended for episode in episodes] == ["done", "time", "cut"]
    np.testing.assert_array_equal(np.concatenate([one.rewards for one in episodes]), columns["rewards"])
    np.testing.assert_array_equal(episodes[1].final["state"], columns["observations"][6] + 1)


def members(path, **content: bytes):
    with zipfile.ZipFile(path, "w") as file:
        for name, text in content.items():
            file.writestr(f"{name}.npy", text)


def header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


BROKEN = {
    "no zip file": (lambda path: path.write_bytes(b"text"), r"log\.npz: not a readable \.npz file .*copy it again"),
    "no actions": (lambda path: np.savez(path, observations=np.zeros((3, 2))), r"log\.npz: 'actions' is missing"),
    "no array": (
        lambda path: members(path, observations=b"text", actions=b"text"),
        r"log\.npz/observations: not an array of NumPy",
    ),
    "objects": (
        lambda path: np.savez(path, observations=np.array([{}, {}]), actions=np.zeros((2, 1))),
        r"log\.npz/observations: holds objects",
    ),
    "a single value": (
        lambda path: np.savez(path, observations=np.float32(1), actions=np.zeros((2, 1))),
        r"log\.npz/observations: holds a single value",
    ),
    "columns": (
        lambda path: np.savez(path, observations=np.asfortranarray(np.ones((3, 2))), actions=np.zeros((3, 1))),
        r"log\.npz/observations: holds columns",
    ),
    "another shape": (
        lambda path: members(
            path, observations=header("{'descr': '<f4', 'fortran_order': False, 'shape': (9, 2)}\n"), actions=b""
        ),
        r"log\.npz/observations: shape \[9, 2\] and \d+ bytes contradict each other",
    ),
}


@pytest.mark.parametrize("build, message", BROKEN.values(), ids=BROKEN)
def test_what_is_refused(tmp_path, build, message):
    build(tmp_path / "log.npz")
    with pytest.raises(ValueError, match=message):
        open_dataset(tmp_path / "log.npz")


def test_a_damaged_file_is_refused_where_it_is_read(tmp_path):
    path = tmp_path / "log.npz"
    columns = arrays([300], ["done"])
    np.savez_compressed(path, **columns)
    content = bytearray(path.read_bytes())
    content[len(content) // 3 : len(content) // 3 + 40] = bytes(40)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"log\.npz.*not a readable \.npz file"):
        open_dataset(path)[0]


def test_an_array_is_read_in_pieces(tmp_path, monkeypatch):
    """Of 4 MB at a time; 64 rows of 1 KB are 16 of them where pieces have 4 KB."""
    monkeypatch.setattr("mmrl.datasets.npz.arrays._PIECE_BYTES", 2**12)
    np.savez(tmp_path / "log.npz", rows=np.arange(64 * 128, dtype=np.float64).reshape(64, 128))
    array = NpzFile(tmp_path / "log.npz")["rows"]
    filled: list[int] = []
    fill = NpzArray._fill
    monkeypatch.setattr(NpzArray, "_fill", lambda self, content: (filled.append(len(content)), fill(self, content))[1])
    assert [array[row : row + 1][0, 0] for row in range(64)] == [128 * row for row in range(64)]
    assert filled == [2**12] * 16
