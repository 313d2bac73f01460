"""A folder has one owner, and the run in it is resumed or kept."""

import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from mmrl.__main__ import main
from mmrl.core.errors import ConfigError
from mmrl.data.checks.finite import last_checkpoint
from mmrl.runs.checkpoint_file import write_checkpoint
from mmrl.runs.run_folder import checkpoints_of, claim_folder, own_folder
from tests.runs.words import fit
from tests.tiny_recipes import ROOT

OWNER = """
import sys, time
from mmrl.runs.run_folder import own_folder
with own_folder(sys.argv[1], None):
    print("owned", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def finished(tmp_path):
    """A folder with files of a run."""
    for name in ("checkpoints/start.ckpt", "checkpoints/last.ckpt", "metrics.csv", "policy/config.json", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def test_a_second_process_is_refused_until_the_first_is_gone(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert owner.stdout.readline() == "owned\n"
    in_use = rf"is in use by a running process \(process {owner.pid} on "
    with pytest.raises(ConfigError, match=in_use), own_folder(str(tmp_path), None):
        pass
    owner.send_signal(signal.SIGKILL)
    owner.wait(30)
    with own_folder(str(tmp_path), None) as folder:
        assert folder == tmp_path


def test_a_folder_with_a_run_is_refused_with_the_choices(finished):
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError) as refused, own_folder(str(finished), None):
        pass
    for word in (f"ckpt_path={finished}/checkpoints/last.ckpt", "another run_dir", "overwrite=true"):
        assert word in str(refused.value)
    assert {path: path.read_bytes() for path in before} == before


def checkpoints_with_false_times(folder):
    """Checkpoints of iterations 2, 9, 10 and 10, whose times say the opposite, as after a copy of the folder."""
    for age, (name, count) in enumerate({"epoch=2": 2, "epoch=9": 9, "epoch=10": 10, "last": 10}.items()):
        path = folder / "checkpoints" / f"{name}.ckpt"
        write_checkpoint({"state_dict": {}, "epoch": count, "global_step": 4 * count}, path)
        os.utime(path, (1e9 - age, 1e9 - age))
    return [folder / "checkpoints" / name for name in ("epoch=2.ckpt", "epoch=9.ckpt", "epoch=10.ckpt", "last.ckpt")]


def test_the_newest_checkpoint_is_not_the_one_of_the_latest_time(finished):
    paths = checkpoints_with_false_times(finished)
    assert checkpoints_of(finished) == paths
    with pytest.raises(ConfigError, match=r"resume it with ckpt_path=\S*last\.ckpt"), own_folder(str(finished), None):
        pass
    trainer = SimpleNamespace(checkpoint_callbacks=[SimpleNamespace(dirpath=str(finished / "checkpoints"))])
    assert last_checkpoint(trainer).endswith("last.ckpt")
    paths.pop().unlink()
    with pytest.raises(ConfigError, match=r"resume it with ckpt_path=\S*epoch=10"), own_folder(str(finished), None):
        pass
    assert last_checkpoint(trainer).endswith("epoch=10.ckpt")


def test_checkpoints_without_a_manifest_are_ordered_by_their_names(finished):
    folder = finished / "checkpoints"
    for age, name in enumerate(("other.ckpt", "epoch=9.ckpt", "epoch=10-step=3.ckpt")):
        (folder / name).write_text("torch.save")
        os.utime(folder / name, (1e9 - age, 1e9 - age))
    (folder / "epoch=11.ckpt").mkdir()  # of a sharded run
    os.utime(folder / "epoch=11.ckpt", (1, 1))
    expected = ["other.ckpt", "epoch=9.ckpt", "epoch=10-step=3.ckpt", "epoch=11.ckpt", "last.ckpt"]
    assert [path.name for path in checkpoints_of(finished)] == expected


def test_the_run_of_the_folder_may_be_resumed(finished):
    with own_folder(str(finished), str(finished / "checkpoints" / "last.ckpt")):
        assert (finished / "metrics.csv").exists()


def test_another_run_may_not_be_resumed_into_it(finished, tmp_path):
    with pytest.raises(ConfigError, match="holds another run already"), own_folder(str(finished), "other/last.ckpt"):
        pass


def test_overwrite_removes_what_runs_write_and_nothing_else(finished):
    with own_folder(str(finished), None, overwrite=True):
        assert sorted(path.name for path in finished.iterdir()) == [".lock", "notes.txt"]
    with pytest.raises(ConfigError, match="either ckpt_path"), own_folder(str(finished), "a.ckpt", overwrite=True):
        pass


def test_a_run_that_ended_before_its_first_checkpoint_is_begun_again(finished):
    (finished / "checkpoints" / "last.ckpt").unlink()
    (finished / "policy" / "config.json").unlink()
    (finished / "policy").rmdir()
    with own_folder(str(finished), None):
        assert not (finished / "metrics.csv").exists()


@pytest.mark.parametrize("run_dir", ["", " ", "/proc/nothing/here", "/dev/null", "x" * 300])
def test_a_folder_that_cannot_be_one_is_refused(run_dir):
    with pytest.raises(ConfigError, match="run_dir"), own_folder(run_dir, None):
        pass


@pytest.mark.parametrize("place", ["new", "a/b/new"])
def test_a_run_that_wrote_nothing_leaves_no_folder_that_it_made(place, tmp_path):
    with pytest.raises(RuntimeError), own_folder(str(tmp_path / place), None):
        raise RuntimeError
    assert not list(tmp_path.iterdir())
    (tmp_path / "a").mkdir()  # is not of this run, nor is the lock of another one's folder
    with pytest.raises(RuntimeError), own_folder(str(tmp_path / "a"), None):
        raise RuntimeError
    assert (tmp_path / "a").is_dir()
    claimed = claim_folder(tmp_path / "claimed")
    with pytest.raises(RuntimeError), own_folder(str(claimed), None, claimed=True):
        raise RuntimeError
    assert not claimed.exists()
    with pytest.raises(RuntimeError), own_folder(str(tmp_path / "written"), None) as folder:
        (folder / "metrics.csv").write_text("x")
        raise RuntimeError
    assert (tmp_path / "written" / "metrics.csv").exists()


@pytest.mark.parametrize("named", [True, False])
def test_a_refused_run_leaves_no_folder(named, tmp_path, capsys, monkeypatch):
    """The policy is refused while it is built, after the folder was locked."""
    monkeypatch.chdir(tmp_path)
    place = ["run_dir=deep/run"] if named else []
    words = ["policy=tiny_text", "policy.config.rope_thetaa=10", "trainer.callbacks.warm_start.stages=null", *place]
    assert main(["fit", "recipe=grpo", "task=arithmetic", *words]) == 2
    assert "rope_thetaa" in capsys.readouterr().err
    assert [path for path in tmp_path.rglob("*") if path.name not in ("runs", "grpo")] == []


def test_the_command_line_keeps_a_run_and_moves_it(tmp_path, capsys, monkeypatch):
    """An empty folder's name is refused; a run is not overwritten; --run_dir takes all files; overwrite begins anew."""
    monkeypatch.chdir(tmp_path)
    short = ("trainer.max_epochs=1", "data.evaluation=null", "trainer.callbacks.curve=null")
    assert fit("", *short) == 2 and "run_dir is empty" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []
    first, second = tmp_path / "first", tmp_path / "second"
    assert fit(first, *short) == 0
    result = {path: path.stat().st_mtime_ns for path in first.rglob("*") if path.is_file() and path.name != ".lock"}
    assert fit(first, *short) == 2
    assert "overwrite=true" in capsys.readouterr().err
    assert main(["fit", "--config", f"{first}/config.yaml", "--run_dir", str(second)]) == 0
    assert {path: path.stat().st_mtime_ns for path in result} == result
    for path in result:
        assert (second / path.relative_to(first)).exists(), path
    assert fit(first, *short, "overwrite=true") == 0
    assert (first / "metrics.csv").stat().st_mtime_ns > result[first / "metrics.csv"]
