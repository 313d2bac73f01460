"""A process that is killed while it exports or writes a measurement leaves old files or new ones, never both."""

import ctypes
import errno
import json
import os
import signal
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from mmrl.evaluation.protocol import Protocol
from mmrl.evaluation.report.result import EvaluationResult
from mmrl.files import atomic, exchange
from mmrl.files.atomic import replace_folder, restore_folder
from mmrl.policies import policy_folder
from mmrl.policies.text.checkpoint import locate_checkpoint

CALLS = ("open", "rename", "replace", "unlink", "mkdir", "rmdir")


def resolve_settings(path: str) -> dict:
    return policy_folder.resolve({}, path, sizes=())


def kill_before_call(number: int, write) -> bool:
    """Run `write` in a child that is killed before its call `number` of the file system; whether it was."""
    pid = os.fork()
    if pid == 0:
        left = [number]

        def counted(call):
            def made(*arguments, **options):
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1
                return call(*arguments, **options)

            return made

        for name in CALLS:
            setattr(os, name, counted(getattr(os, name)))
        atomic.exchange_paths = counted(exchange.exchange_paths)
        write()
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def export(run: Path, version: str) -> None:
    with replace_folder(run / "policy") as folder:
        for name in ("config.json", "model-1.safetensors", "model-2.safetensors", "tokenizer.json"):
            number = os.open(folder / name, os.O_CREAT | os.O_WRONLY)
            os.write(number, version.encode())
            os.close(number)


def without_exchange(monkeypatch):
    """A kernel or a file system that cannot exchange two names, as NFS."""

    def refuse(*arguments):
        ctypes.set_errno(errno.EINVAL)
        return -1

    monkeypatch.setattr(exchange, "_LIBC", SimpleNamespace(renameat2=refuse))


@pytest.mark.parametrize("exchanges", [True, False])
@pytest.mark.parametrize("before", ["old", "link", None], ids=str)
def test_an_export_that_is_killed_at_any_call_is_whole(before, exchanges, tmp_path, monkeypatch):
    elsewhere, run = tmp_path / "elsewhere", tmp_path / "run"
    export(elsewhere, "old")
    run.mkdir()
    if not exchanges:
        without_exchange(monkeypatch)
    kills, versions = 0, []
    for number in count():
        atomic.remove_path(run / "policy")
        if before == "old":
            export(run, "old")
        elif before == "link":
            (run / "policy").symlink_to(elsewhere / "policy")
        if not kill_before_call(number, lambda: export(run, "new")):
            break
        kills += 1
        assert (run / "policy").exists() or not (exchanges and before)
        files = sorted(restore_folder(run / "policy").glob("*"))
        contents = {file.read_text() for file in files}
        assert len(files) == 4 and len(contents) == 1 if before or files else not contents
        versions.append(*contents or ["none"])
        export(run, "old")  # the next run exports again
        assert [path.name for path in run.iterdir()] == ["policy"]
    assert kills >= 8 and versions == sorted(versions, key=["none", "old", "new"].index)
    assert {"old" if before else "none", "new"} == set(versions)
    assert {file.read_text() for file in (elsewhere / "policy").iterdir()} == {"old"}


def test_names_that_cannot_be_exchanged_are_as_before(tmp_path, monkeypatch):
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    assert exchange.exchange_paths(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a").read_text() == "b" and (tmp_path / "b").read_text() == "a"
    with pytest.raises(FileNotFoundError):
        exchange.exchange_paths(tmp_path / "a", tmp_path / "c")
    without_exchange(monkeypatch)
    assert not exchange.exchange_paths(tmp_path / "a", tmp_path / "b") and (tmp_path / "a").read_text() == "b"


@pytest.mark.parametrize("exchanges", [True, False])
def test_readers_beside_a_writer(exchanges, tmp_path, monkeypatch):
    """Another process exports all the time; a reader restores what it does not find, which does not harm the writer."""
    if not exchanges:
        without_exchange(monkeypatch)
    export(tmp_path, "old")
    pid = os.fork()
    if pid == 0:
        for version in ("new", "old") * 60:
            export(tmp_path, version)
        os._exit(0)
    looks = 0
    while (ended := os.waitpid(pid, os.WNOHANG)) == (0, 0):
        if exchanges:
            os.close(os.open(tmp_path / "policy", os.O_RDONLY))  # is there at any moment
        restore_folder(tmp_path / "policy")
        looks += 1
    assert ended[1] == 0 and looks > 20
    assert [file.read_text() for file in (tmp_path / "policy").iterdir()] == ["old"] * 4


def test_a_measurement_that_is_killed_at_any_call_is_whole_or_missing(tmp_path):
    old, new = Protocol({"problems": 0}), Protocol({"problems": 1})
    kills = 0
    for number in count():
        old.write(tmp_path)
        (tmp_path / "episodes.jsonl").write_text("old")
        (tmp_path / "evaluation.json").write_text("{}")
        if not kill_before_call(number, lambda: EvaluationResult(new, {}).write(tmp_path, {"new": 1})):
            break
        kills += 1
        if (tmp_path / "protocol.json").exists():
            expected = ("old", {}) if Protocol.read(tmp_path) == old else ("", {"new": 1})
            metrics = json.loads((tmp_path / "evaluation.json").read_text())
            assert ((tmp_path / "episodes.jsonl").read_text(), metrics) == expected
        else:
            with pytest.raises(ValueError, match=r"protocol\.json missing\): run mmrl evaluate"):
                EvaluationResult.read(tmp_path)
    assert kills >= 6


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
def test_an_export_that_fails_leaves_the_old_policy(kind, tmp_path):
    export(tmp_path, "old")
    with pytest.raises(kind), replace_folder(tmp_path / "policy") as folder:
        (folder / "config.json").write_text("new")
        raise kind
    assert {file.read_text() for file in (tmp_path / "policy").iterdir()} == {"old"}
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]


@pytest.mark.parametrize("read", [locate_checkpoint, resolve_settings], ids=lambda read: read.__name__)
def test_policies_are_read_after_a_kill_between_two_renames(read, tmp_path):
    export(tmp_path, "{}")
    os.rename(tmp_path / "policy", tmp_path / ".policy.before")
    read(str(tmp_path / "policy"))
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]
    with pytest.raises(ValueError, match=r"no such folder|is missing"):
        read(str(tmp_path / "other"))
