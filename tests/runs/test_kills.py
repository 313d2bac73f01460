"""A run that is killed and resumed is the run that was not killed: checkpoints, weights and every row of metrics."""

import os
import shutil
from pathlib import Path

import pytest

from tests.runs.kills import RUNS, kill_runs


@pytest.fixture
def folders(tmp_path):
    """On two file systems where there are two."""
    other = Path("/dev/shm")
    usable = other.is_dir() and os.access(other, os.W_OK) and other.stat().st_dev != tmp_path.stat().st_dev
    here, there = tmp_path / "here", (other if usable else tmp_path) / f"mmrl-kills-{os.getpid()}"
    here.mkdir()
    there.mkdir()
    yield [here, there]
    shutil.rmtree(there)


def test_runs_that_are_killed_twice(folders):
    done = kill_runs(["text"], folders[:1], kills=2, iterations=4, most=2)
    assert done.total() == 2


@pytest.mark.slow
def test_forty_kills_on_two_file_systems(folders):
    done = kill_runs(list(RUNS), folders, kills=40, iterations=8)
    assert done.total() == 40
    assert sum(number for met, number in done.items() if met.endswith("saving")) >= 4
