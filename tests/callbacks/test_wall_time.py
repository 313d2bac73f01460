"""The phases that an iteration logs are all of it."""

import csv
import time
from itertools import cycle

import pytest

from tests.tiny_recipes import fit


def test_the_phases_make_up_the_iteration(tmp_path):
    logger = f"trainer.logger={{csv: {{_target_: mmrl.runs.metrics_csv.MetricsCSV, run_dir: '{tmp_path}'}}}}"
    words = ("trainer.max_epochs=2", "trainer.check_val_every_n_epoch=1", "data.pipeline=[old, group_advantage]")
    words += ("data.transforms={drop_zero_variance: null}",)  # rollout/episodes counts those that are trained on
    fit(tmp_path, *words, logger)
    with (tmp_path / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["time/iteration"]]
    assert len(rows) == 2
    for row in rows:
        seconds = {name: float(row[f"time/{name}"]) for name in PHASES}
        whole = float(row["time/iteration"])
        assert all(value > 0 for value in seconds.values())
        assert sum(seconds.values()) <= whole  # each second is counted once; held-out measurements are outside
        assert float(row["peak_gib"]) > 0
        result = float(row["rollout/tokens_mean"]) * float(row["rollout/episodes"])
        assert float(row["rollout/tokens_per_second"]) == pytest.approx(result / seconds["rollout"])


PHASES = ("sync", "rollout", "score", "collate", "annotators", "learn")


def test_a_clock_that_jumps_ends_no_run_and_measures_no_time(tmp_path, monkeypatch):
    """The time of day jumps by two hours with every look at it; the run has one hour."""
    clock, jumps = time.time, cycle([0.0, 7200.0, -7200.0])
    monkeypatch.setattr(time, "time", lambda: clock() + next(jumps))
    logger = f"trainer.logger={{csv: {{_target_: mmrl.runs.metrics_csv.MetricsCSV, run_dir: '{tmp_path}'}}}}"
    fit(tmp_path, "trainer.max_time=00:01:00:00", "trainer.max_epochs=2", "data.evaluation=null", logger)
    with (tmp_path / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["time/iteration"]]
    assert len(rows) == 2
    assert all(0 <= float(row[name]) < 600 for row in rows for name in row if name.startswith("time/"))
