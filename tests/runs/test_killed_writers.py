"""A process that is killed while it exports or writes a measurement leaves old files or new ones, never both."""

import json
import os
import signal
from itertools import count
from pathlib import Path

import pytest

from mmrl.evaluation.protocol import Protocol
from mmrl.evaluation.report.result import EvaluationResult
from mmrl.files.atomic import replace_folder

CALLS = ("open", "rename", "replace", "unlink", "mkdir", "rmdir")


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
        write()
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def export(run: Path, version: str) -> None:
    with replace_folder(run / "policy") as folder:
        for name in ("config.json", "model-1.safetensors", "model-2.safetensors", "tokenizer.json"):
            number = os.open(folder / name, os.O_CREAT | os.O_WRONLY)
            os.write(number, version.encode())
            os.close(number)


def test_an_export_that_is_killed_at_any_call_is_whole(tmp_path):
    export(tmp_path, "old")
    kills = 0
    for number in count():
        if not kill_before_call(number, lambda: export(tmp_path, "new")):
            break
        kills += 1
        files = sorted((tmp_path / "policy").glob("*"))
        assert len(files) in (0, 4) and len({file.read_text() for file in files}) <= 1
        export(tmp_path, "old")  # the next run exports again
        assert [path.name for path in tmp_path.iterdir()] == ["policy"]
    assert kills >= 10


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
