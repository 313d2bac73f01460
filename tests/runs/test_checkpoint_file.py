"""A checkpoint is complete or not there, its bytes are checked, and reading it runs no code."""

import os
import pickle
import resource
import signal
import zipfile
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch.testing import assert_close

from mmrl.files.pickled import PICKLED
from mmrl.runs.checkpoint_file import PARTS, WEIGHTS, CheckpointError, read_checkpoint, read_manifest, write_checkpoint
from tests.runs.processes import run
from tests.tiny_recipes import ROOT


def checkpoint(seed=0):
    """All kinds of content: tied weights, a view, types that safetensors lacks, whole numbers as keys, and NaN."""
    torch.manual_seed(seed)
    weight = torch.randn(4, 3)
    model = torch.nn.Linear(3, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    return {
        "epoch": 3,
        "global_step": 7,
        "state_dict": {
            "in": weight,
            "out": weight,
            "row": weight[1],
            "turned": torch.arange(6).reshape(2, 3).T,
            "half": torch.ones(2, dtype=torch.bfloat16),
            "wave": torch.tensor([1 + 2j]),
            "none": torch.zeros(0),
        },
        "optimizer_states": [optimizer.state_dict()],
        "data": {5: (1, 2.5), "nan": float("nan"), "large": 2**90, "flags": [True, None]},
        "loops": {},
        "lr_schedulers": [],
    }


def test_what_is_written_is_read(tmp_path):
    written = checkpoint()
    write_checkpoint({**written, "drawn": {1, 2}}, tmp_path / "a.ckpt")
    read = read_checkpoint(tmp_path / "a.ckpt")
    assert read.pop("drawn") == {1, 2} and isinstance(read["data"][5], tuple)
    assert_close(read, written, atol=0, rtol=0, equal_nan=True)
    assert read_manifest(tmp_path / "a.ckpt")["epoch"] == 3
    assert os.listdir(tmp_path) == ["a.ckpt"]


def test_the_weights_are_safetensors(tmp_path):
    write_checkpoint(checkpoint(), tmp_path / "a.ckpt")
    with zipfile.ZipFile(tmp_path / "a.ckpt") as archive:
        weights = safetensors.torch.load(archive.read(WEIGHTS))
    assert_close(weights["in"], checkpoint()["state_dict"]["in"], atol=0, rtol=0)


@pytest.mark.parametrize("part", PARTS)
def test_flipped_bytes_are_refused(part, tmp_path):
    path = tmp_path / "a.ckpt"
    write_checkpoint(checkpoint(), path)
    with zipfile.ZipFile(path) as archive:
        content = archive.read(part)
    whole = bytearray(path.read_bytes())
    for offset in (0, len(content) // 2, len(content) - 1):
        flipped = bytearray(whole)
        flipped[whole.index(content) + offset] ^= 1
        path.write_bytes(flipped)
        with pytest.raises(CheckpointError, match=r"a\.ckpt.*damaged"):
            read_checkpoint(path)


def test_a_part_that_was_exchanged_is_refused(tmp_path):
    write_checkpoint(checkpoint(0), tmp_path / "a.ckpt")
    write_checkpoint(checkpoint(1), tmp_path / "b.ckpt")
    one, two = (zipfile.ZipFile(tmp_path / name) for name in ("a.ckpt", "b.ckpt"))
    with one, two, zipfile.ZipFile(tmp_path / "c.ckpt", "w") as mixed:
        for name in one.namelist():
            mixed.writestr(name, (two if name == WEIGHTS else one).read(name))
    with pytest.raises(CheckpointError, match=r"weights\.safetensors is damaged, its SHA-256"):
        read_checkpoint(tmp_path / "c.ckpt")


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.999])
def test_a_truncated_file_is_refused(share, tmp_path):
    path = tmp_path / "a.ckpt"
    write_checkpoint(checkpoint(), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(CheckpointError, match="not a readable checkpoint"):
        read_checkpoint(path)


@pytest.mark.parametrize("content", [[1, 2], 5, {"epoch": 1}, {"state_dict": [1]}])
def test_what_is_no_checkpoint_is_refused(content, tmp_path):
    torch.save(content, tmp_path / "a.ckpt")
    with pytest.raises(CheckpointError, match="no state_dict"):
        read_checkpoint(tmp_path / "a.ckpt")


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def bombs(mark):
    """Checkpoints that run code: as torch.save wrote them before, in the part of plain data, and in a simulator's."""
    pickled = torch.frombuffer(bytearray(pickle.dumps(Bomb(mark))), dtype=torch.uint8)
    return {
        "old": lambda path: torch.save({**checkpoint(), "callbacks": Bomb(mark)}, path),
        "state": lambda path: write_checkpoint({**checkpoint(), "callbacks": Bomb(mark)}, path),
        "plain pickle": lambda path: path.write_bytes(pickle.dumps({**checkpoint(), "callbacks": Bomb(mark)})),
        "simulator": lambda path: write_checkpoint({**checkpoint(), "data": [{"venv": {PICKLED: pickled}}]}, path),
    }


@pytest.mark.parametrize("name", bombs(None))
def test_a_bomb_runs_nothing(name, tmp_path):
    mark = tmp_path / "ran"
    bombs(mark)[name](tmp_path / "a.ckpt")
    with pytest.raises(CheckpointError, match="give trust=true"):
        read_checkpoint(tmp_path / "a.ckpt")
    assert not mark.exists()


def test_trust_reads_pickled_objects(tmp_path):
    mark = tmp_path / "ran"
    bombs(mark)["old"](tmp_path / "a.ckpt")
    assert read_checkpoint(tmp_path / "a.ckpt", trust=True)["epoch"] == 3
    assert mark.exists()


def test_a_file_that_torch_saved_is_read_when_it_is_plain(tmp_path):
    torch.save(checkpoint(), tmp_path / "old.ckpt")
    assert_close(read_checkpoint(tmp_path / "old.ckpt"), checkpoint(), atol=0, rtol=0, equal_nan=True)
    assert read_manifest(tmp_path / "old.ckpt") == {}


def other_file_system(tmp_path: Path) -> Path:
    """A folder that is not on the file system of /tmp."""
    for folder in (Path("/dev/shm"), ROOT, tmp_path):
        if folder.is_dir() and os.access(folder, os.W_OK) and folder.stat().st_dev != Path("/tmp").stat().st_dev:
            return folder
    pytest.skip("there is one file system only")


def die_while_saving(path):
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # kills in the middle of the file
    write_checkpoint({**checkpoint(1), "state_dict": {"w": torch.zeros(1_000_000)}}, path)


def test_a_process_killed_while_it_saves_leaves_the_checkpoint_that_was_there(tmp_path):
    """On a file system other than /tmp's too: the new file grows beside the old one."""
    for folder in (tmp_path, other_file_system(tmp_path) / f"mmrl-{os.getpid()}"):
        path = folder / "last.ckpt"
        write_checkpoint(checkpoint(), path)
        before = path.read_bytes()
        assert run(die_while_saving, path) == -signal.SIGXFSZ
        assert path.read_bytes() == before and len(os.listdir(folder)) == 2
        write_checkpoint(checkpoint(2), path)
        assert os.listdir(folder) == ["last.ckpt"]  # what the killed one left is gone
        path.unlink()
        folder.rmdir()


def test_a_full_file_system_leaves_the_checkpoint_that_was_there(tmp_path):
    path = tmp_path / "last.ckpt"
    write_checkpoint(checkpoint(), path)
    before, limit = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limit[1]))  # Python ignores SIGXFSZ: an error of write
    try:
        with pytest.raises(CheckpointError, match=r"last\.ckpt: File too large.*that was there is intact"):
            write_checkpoint({**checkpoint(1), "state_dict": {"w": torch.zeros(1_000_000)}}, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["last.ckpt"]
