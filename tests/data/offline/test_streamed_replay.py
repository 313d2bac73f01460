"""A recording on disk: the batches of the same recording in memory, a bound on the memory, and runs that resume."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.rng import derive_rng
from mmrl.data.offline.row_file import RowFile
from mmrl.data.offline.streamed_replay import StreamedReplay
from mmrl.data.offline.transitions import exceeds_memory, fill_replay
from mmrl.data.replay_buffer import ReplayBuffer
from mmrl.datasets.formats import open_dataset
from mmrl.policies.control.tanh_mean import TanhMeanPolicy
from scripts.control.measure_loading import write_log
from tests.data.offline.recordings import arrays, write
from tests.quick_python import quick_python
from tests.tiny_recipes import QUIET

SCRIPT = Path(__file__).parents[3] / "scripts/control/measure_loading.py"
LENGTHS, ENDS = [3, 4, 2, 3, 6, 1], ["done", "time", "time", "done", "time", "done"]
SMALL = (*QUIET, "policy.hidden=[8]", "data.gradient_steps=4", "data.replay.batch_size=8", "data.replay.capacity=100")


def both(tmp_path, **options) -> tuple[ReplayBuffer, StreamedReplay]:
    """The same recording in memory and on disk."""
    dataset = open_dataset(write(tmp_path / "log.hdf5", **arrays(LENGTHS, ENDS)))
    in_memory = ReplayBuffer(capacity=100, batch_size=64, **options)
    on_disk = StreamedReplay(in_memory, tmp_path / "rows")
    for replay in (in_memory, on_disk):
        fill_replay(replay, dataset, TanhMeanPolicy(3, 2, hidden=[4]))
    return in_memory, on_disk


@pytest.mark.parametrize("n_steps", [1, 3])
def test_batches_are_those_of_the_recording_in_memory(tmp_path, n_steps):
    in_memory, on_disk = both(tmp_path, n_steps=n_steps, gamma=0.5)
    drawn = [replay.sample(5, derive_rng(0, "test")) for replay in (in_memory, on_disk)]
    assert drawn[0].keys() == drawn[1].keys() and on_disk.num_transitions == in_memory.num_transitions == 16
    for name, column in drawn[0].items():
        assert column.dtype == drawn[1][name].dtype and torch.equal(column, drawn[1][name]), name


def test_every_transition_is_drawn_equally_often(tmp_path):
    """80,000 draws of 16 transitions: 5,000 each, with a standard deviation of sqrt(80000 (1/16) (15/16)) = 68."""
    _, on_disk = both(tmp_path)
    numbers = on_disk.sample(1250, derive_rng(0, "test"))["obs.state"][..., 0].int().flatten()
    counts = numbers.bincount()
    # of each time limit the last row has no next observation: rows 6, 8 and 17 are never drawn
    assert (counts == 0).nonzero().flatten().tolist() == [6, 8, 17] and len(counts) == 19
    assert (counts[counts > 0] - 5000).abs().max() < 5 * 68


def test_rows_of_a_file_by_their_numbers(tmp_path):
    """Rows 0 to 9 in three parts; behind row 9 nothing is stored. The folder is empty while the file is open."""
    rows = RowFile(tmp_path / "new" / "folder")
    for part in torch.arange(10).split([1, 6, 3]):
        rows.append({"number": part, "flag": part > 4, "image": part[:, None, None].expand(-1, 2, 3).byte()})
    columns = rows.read(torch.tensor([8, 2, 9]), 3)
    assert columns["number"].tolist() == [8, 9, 0, 2, 3, 4, 9, 0, 0]
    assert columns["flag"].tolist() == [True, True, False, False, False, False, True, False, False]
    assert columns["image"][:, 1, 2].tolist() == columns["number"].tolist() and columns["image"].shape == (9, 2, 3)
    assert rows.bytes == 10 * (8 + 1 + 6) and not list((tmp_path / "new" / "folder").iterdir())
    with pytest.raises(ValueError, match="have columns"):
        rows.append({"number": torch.zeros(2)})
    rows.close()
    rows.close()
    with pytest.raises(ValueError, match="is closed"):
        rows.read(torch.tensor([0]), 1)


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Path:
    """200 MB of rows: 500,000 transitions of 100 observed numbers, in episodes of 1,000."""
    path = tmp_path_factory.mktemp("large") / "log.hdf5"
    write_log(path, 500_000, dims=100, actions=2, steps=1000)
    return path


def test_a_recording_of_several_times_the_memory(large):
    """On disk the process grows by less than 60 MB over 206 MB of rows, in memory by at most 1.5 times as much."""
    results = {}
    for place in ("disk", "memory"):
        command = [quick_python(), str(SCRIPT), "--file", str(large), "--place", place, "--batches", "64"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr
        results[place] = json.loads(done.stdout)
    disk, memory = results["disk"], results["memory"]
    assert disk["sum"] == memory["sum"] and disk["transitions"] == memory["transitions"] == 499_500
    assert disk["size_mb"] == 206.5 and disk["growth_mb"] < 60 and 200 < memory["growth_mb"] < 1.5 * 206.5


# ---------------------------------------------------------------- runs


@pytest.fixture
def log(tmp_path) -> Path:
    columns = arrays(LENGTHS, ENDS, actions=1)
    return write(tmp_path / "log.hdf5", **{**columns, "actions": 2 * columns["actions"]})


def fit(folder, log, *words) -> CLI:
    start = ("recipe=iql", "setting=transitions", f"task.path='{log}'", *SMALL, f"run_dir='{folder}'")
    cli = CLI(to_lightning(compose([*start, *words])))
    cli.fit()
    return cli


def test_a_run_from_disk_is_the_run_from_memory_and_resumes(log, tmp_path):
    """Weights after two iterations: in memory, and on disk in two runs of one iteration."""
    in_memory = fit(tmp_path / "memory", log, "trainer.max_epochs=2")
    first = ("trainer.max_epochs=1", "trainer.callbacks.last.every_n_epochs=1", "data.on_disk=true")
    half = fit(tmp_path / "part", log, *first)
    kinds = [isinstance(cli.datamodule.replay, StreamedReplay) for cli in (in_memory, half)]
    assert kinds == [False, True]
    assert half.datamodule.metrics["replay/disk_gib"] > 0
    checkpoint = next((tmp_path / "part").rglob("last.ckpt"))
    resumed = fit(tmp_path / "part", log, "trainer.max_epochs=2", "data.on_disk=true", f"ckpt_path='{checkpoint}'")
    for name, value in in_memory.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name


def test_a_recording_goes_to_disk_by_itself_where_memory_is_short(log, tmp_path, monkeypatch):
    """At most 19 rows and 6 final observations of 4 * (3 + 1) + 5 = 21 bytes are 525; half of the memory may be used.

    A capacity of 24 rows needs 504 bytes, whatever the recording has.
    """
    dataset, policy = open_dataset(log), TanhMeanPolicy(3, 1, low=-2.0, high=2.0, hidden=[4])
    for available, capacity, expected in ((1048, 100, True), (1050, 100, False), (1048, 24, False)):
        monkeypatch.setattr("mmrl.data.offline.transitions.available_memory", lambda available=available: available)
        assert exceeds_memory(dataset, policy, capacity) == expected
    monkeypatch.setattr("mmrl.data.offline.transitions.available_memory", lambda: 1)
    for words, expected in ([], True), (["data.on_disk=false"], False):
        replay = fit(tmp_path / str(expected), log, *words, "trainer.max_epochs=1").datamodule.replay
        assert isinstance(replay, StreamedReplay) == expected


def test_what_cannot_stay_on_disk_is_refused(log, tmp_path):
    with pytest.raises(ValueError, match=r"data\.on_disk=true .*data\.collect_from=1.*or data\.on_disk=false"):
        fit(tmp_path / "run", log, "data.on_disk=true", "data.collect_from=1")
    with pytest.raises(ValueError, match=r"data\.folder=.*log\.hdf5.*cannot be written there.*data\.folder=FOLDER"):
        fit(tmp_path / "run", log, "data.on_disk=true", f"data.folder='{log}'", "trainer.max_epochs=1")
    full = RowFile(tmp_path)
    device = os.open("/dev/full", os.O_WRONLY)
    os.dup2(device, full._number)
    os.close(device)
    with pytest.raises(ValueError, match=r"data\.folder=.*no room for the rows .* after 0 bytes.*a larger disk"):
        full.append({"number": torch.arange(3)})
