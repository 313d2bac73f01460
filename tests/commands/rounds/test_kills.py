"""Rounds that are killed in every stage, also while data are written, become the rounds that were not killed."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mmrl.runs.checkpoint_file import read_checkpoint
from tests.commands.rounds.tiny import run_rounds, write_file
from tests.runs.kills import STATE, equal
from tests.runs.processes import start

DATA = ("grow", "mark", "keep")
ENDS = ("1/learn/stage.json", "1/measure/stage.json")
WRITES = (*(f"1/{name}/{file}" for name in DATA for file in ("rows.jsonl", "stage.json")), *ENDS)


def finish(words: list[str], log: Path, *kill_before: str) -> int | None:
    """The exit code of rounds that run to their end, or to a file before which they die."""
    process = start(run_rounds, words, log, kill_before)
    process.join(400)
    if process.exitcode not in (0, -signal.SIGKILL):
        raise AssertionError(f"exit code {process.exitcode}\n{log.read_text()[-3000:]}")
    return process.exitcode


def kill_when(words: list[str], log: Path, condition: Callable[[], bool]) -> None:
    """Kill rounds as soon as their folder meets a condition."""
    process = start(run_rounds, words, log)
    until = time.monotonic() + 400
    while not condition():
        assert process.is_alive() and time.monotonic() < until, log.read_text()[-3000:]
        time.sleep(0.0005)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def list_files(folder: Path) -> list[str]:
    """Data and receipts below a folder."""
    files = [path for name in ("rows.jsonl", "stage.json") for path in folder.rglob(name)]
    return sorted(path.relative_to(folder).as_posix() for path in files)


def differences(one: Path, other: Path) -> list[str]:
    """What two folders of rounds do not have in common: data, table, plot and the weights and states of their fits."""
    names, others = (list_files(folder) for folder in (one, other))
    assert names == others
    result = []
    for name in (*names, "table.csv", "scores.png", "rounds.yaml"):
        contents = [(folder / name).read_bytes().replace(str(folder).encode(), b"") for folder in (one, other)]
        result += [name] if contents[0] != contents[1] else []
    for last in sorted(one.rglob("last.ckpt")):
        checkpoints = [read_checkpoint(folder / last.relative_to(one)) for folder in (one, other)]
        result += [f"{last.relative_to(one)}: {key}" for key in STATE if not equal(*(c.get(key) for c in checkpoints))]
    return result


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of rounds that ran without interruption, and their file."""
    place = tmp_path_factory.mktemp("rounds")
    file = write_file(place / "tiny.yaml")
    assert finish([str(file), f"run_dir={place / 'whole'}"], place / "whole.log") == 0
    return file, place / "whole"


def kill_at_write(words: list[str], log: Path, folder: Path, name: str) -> None:
    """Kill rounds when a file is written and has not yet its name."""
    assert finish(words, log, name) == -signal.SIGKILL
    assert (folder / name).with_name(f".{Path(name).name}.part").exists() and not (folder / name).exists()


def test_rounds_that_are_killed_in_every_stage_are_the_same_rounds(whole):
    """Amid the parts of the data, while they are joined or filtered, amid training, and amid the evaluation."""
    file, folder = whole
    killed, log = folder.with_name("killed"), folder.with_name("killed.log")
    words = [str(file), f"run_dir={killed}"]
    kill_when(words, log, (killed / "1/grow/parts/00001.jsonl").exists)
    kill_at_write(words, log, killed, "1/grow/rows.jsonl")
    kill_when(words, log, (killed / "1/mark/parts/00001.jsonl").exists)
    assert not (killed / "1/mark/rows.jsonl").exists()
    kill_at_write(words, log, killed, "1/keep/rows.jsonl")
    kill_when(words, log, (killed / "1/learn/checkpoints/last.ckpt").exists)
    kill_when(words, log, (killed / "1/measure/config.yaml").exists)
    assert not (killed / "1/measure/stage.json").exists()
    assert finish(words, log) == 0
    assert not differences(killed, folder)
    assert not list(killed.rglob("parts"))


@pytest.mark.slow
def test_rounds_that_are_killed_at_every_write_are_the_same_rounds(whole):
    file, folder = whole
    killed, log = folder.with_name("killed-writes"), folder.with_name("killed-writes.log")
    words = [str(file), f"run_dir={killed}"]
    for name in WRITES:
        kill_at_write(words, log, killed, name)
    assert finish(words, log) == 0
    assert not differences(killed, folder)


def test_rounds_that_have_ended_run_nothing_again(whole):
    file, folder = whole
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.json*")}
    assert finish([str(file), f"run_dir={folder}"], folder.with_name("again.log")) == 0
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("*.json*")}
    assert "1/grow" not in folder.with_name("again.log").read_text().split("tiny")[0]


def test_rows_that_were_changed_are_refused_before_they_are_read(whole):
    file, folder = whole
    words, log = [str(file), f"run_dir={folder}", "rounds=2"], folder.with_name("changed.log")
    rows = folder / "1/keep/rows.jsonl"
    content = rows.read_bytes()
    rows.write_bytes(content.replace(b'"completion": "', b'"completion": "1', 1))
    (folder / "1/learn/stage.json").rename(folder / "stage.json")
    process = start(run_rounds, words, log)
    process.join(60)
    (folder / "stage.json").rename(folder / "1/learn/stage.json")
    rows.write_bytes(content)
    assert process.exitcode == 2 and "1/keep/rows.jsonl is not what was written" in log.read_text()
