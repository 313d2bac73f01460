"""Logs of SAC on Pendulum, and the table of offline methods on them."""

import json

import h5py
import numpy as np
import pytest

from mmrl.datasets.formats import open_dataset
from scripts.control.measure_offline import format_scores, list_runs, normalise
from scripts.control.pendulum_logs import LOGS, record_logs


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """Two iterations of SAC are medium, three the expert."""
    folder = tmp_path_factory.mktemp("logs")
    record_logs(folder, seed=100, medium=2, expert=3, episodes=2)
    return folder


def read(path):
    with h5py.File(path) as file:
        return {name: file[name][:] for name in file}


@pytest.mark.slow
def test_rows_follow_each_other_as_pendulum_says(logs):
    """The next observation is that of the equation of motion: theta' += (15 sin theta + 3 u) / 20, clipped to 8."""
    for name in LOGS:
        rows = read(logs / f"{name}.hdf5")
        cos, sin, speed = rows["observations"].T
        torque = rows["actions"][:, 0].clip(-2, 2)
        faster = (speed + (15 * sin + 3 * torque) * 0.05).clip(-8, 8)
        angle = np.arctan2(sin, cos) + faster * 0.05
        expected = np.stack([np.cos(angle), np.sin(angle), faster], axis=1)
        np.testing.assert_allclose(rows["next_observations"], expected, atol=2e-4)
        reward = -(np.arctan2(sin, cos) ** 2 + 0.1 * speed**2 + 0.001 * torque**2)
        np.testing.assert_allclose(rows["rewards"], reward, atol=2e-3)
        inside = ~rows["timeouts"][:-1]
        np.testing.assert_array_equal(rows["observations"][1:][inside], rows["next_observations"][:-1][inside])
        assert not rows["terminals"].any() and rows["timeouts"][-1] and np.abs(rows["actions"]).max() <= 2


@pytest.mark.slow
def test_sizes_and_anchors(logs):
    assert open_dataset(logs / "expert.hdf5").lengths() == [200, 200]
    assert sum(open_dataset(logs / "medium_replay.hdf5").lengths()) == 2 * 64
    numbers = json.loads((logs / "anchors.json").read_text())
    rewards = read(logs / "medium.hdf5")["rewards"]
    assert numbers["returns"]["medium"] == pytest.approx(rewards.sum() / 2, rel=1e-5)
    segments = read(logs / "medium_replay.hdf5")["rewards"]  # 64 steps each
    assert numbers["returns"]["medium_replay"] == pytest.approx(segments.sum() / 2 * 200 / 64, rel=1e-5)
    assert -2000 < numbers["random"] < -600  # 200 steps, about -6 each


@pytest.mark.slow
def test_logs_that_are_there_stay(logs):
    times = [(logs / f"{name}.hdf5").stat().st_mtime_ns for name in LOGS]
    record_logs(logs, seed=100, medium=2, expert=3, episodes=2)
    assert times == [(logs / f"{name}.hdf5").stat().st_mtime_ns for name in LOGS]


def test_scores_by_hand():
    """Random -1200, expert -200: -700 is half of the way. Of 40 and 60 Student's interval is 50 +- 12.706 * 10."""
    anchors = {"random": -1200.0, "expert": -200.0}
    assert normalise(-700, anchors) == 50 and normalise(-1200, anchors) == 0 and normalise(-100, anchors) == 110
    table = format_scores({"medium": {"IQL": {0: 40.0, 1: 60.0}, "BC": {0: 7.0}}}, dict.fromkeys(LOGS, -700.0), anchors)
    row = next(line for line in table.splitlines() if line.startswith("| medium |"))
    assert row == "| medium | 50 | 7 | 50 [-77, 177] | not run | not run | not run |"


@pytest.mark.slow
def test_every_method_runs_on_every_log(tmp_path):
    listed = list_runs(tmp_path, [0, 1], tmp_path / "runs", ["trainer.max_epochs=1"])
    assert len(listed) == 2 * 3 * 5 and len({run.folder for run in listed}) == 30
    assert len({run.content for run in listed}) == 15  # one of each log and method
