"""metrics.csv has every iteration once, whatever ended the run in between."""

import csv
import os

import pytest

from mmrl.runs.metrics_csv import MetricsCSV, read_rows
from tests.runs.words import fit


def rows(folder):
    with (folder / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


def log(folder, *iterations, **columns):
    logger = MetricsCSV(str(folder))
    for iteration in iterations:
        logger.log_metrics({"iterations": float(iteration), "epoch": iteration - 1, **columns}, step=10 * iteration)


def test_a_row_is_on_the_disk_when_it_is_logged(tmp_path):
    logger = MetricsCSV(str(tmp_path))
    for iteration in range(3):
        logger.log_metrics({"iterations": float(iteration)}, step=iteration)
        assert [float(row["iterations"]) for row in rows(tmp_path)] == list(range(iteration + 1))


def test_a_resumed_run_replaces_what_it_plays_again_and_keeps_the_rest(tmp_path):
    log(tmp_path, 1, 2, 3, 4, reward=1.0)
    log(tmp_path, 3, 4, 5, reward=2.0)
    assert [(float(r["iterations"]), float(r["reward"])) for r in rows(tmp_path)] == [
        *((1, 1.0), (2, 1.0)),
        *((3, 2.0), (4, 2.0), (5, 2.0)),
    ]


def test_new_columns_keep_the_rows_before_them(tmp_path):
    log(tmp_path, 1, 2, reward=1.0)
    log(tmp_path, 3, reward=2.0, other=5.0)
    logger = MetricsCSV(str(tmp_path))
    logger.log_metrics({"lr": 0.1}, step=31)  # of a callback that does not name the iteration
    logger.log_metrics({"iterations": 4.0, "reward": 3.0}, step=40)
    assert [row["reward"] for row in rows(tmp_path)] == ["1.0", "1.0", "2.0", "", "3.0"]
    assert [row["other"] for row in rows(tmp_path)] == ["", "", "5.0", "", ""]
    assert [row["lr"] for row in rows(tmp_path)] == ["", "", "", "0.1", ""]


def test_a_row_that_was_written_in_part_is_dropped(tmp_path):
    log(tmp_path, 1, 2, reward=1.0)
    with (tmp_path / "metrics.csv").open("a") as file:
        file.write("2,3.0,1.")
    log(tmp_path, 3, reward=2.0)
    assert [float(row["iterations"]) for row in rows(tmp_path)] == [1, 2, 3]


def test_a_logger_that_logs_nothing_changes_nothing(tmp_path):
    log(tmp_path, 1, 2, reward=1.0)
    before = (tmp_path / "metrics.csv").read_bytes()
    MetricsCSV(str(tmp_path)).finalize("success")
    assert (tmp_path / "metrics.csv").read_bytes() == before and len(read_rows(tmp_path / "metrics.csv")) == 2


def test_a_run_resumed_in_its_folder_has_all_rows_and_the_curve_of_all(tmp_path):
    """Resumed with more iterations, resumed when it is finished, and resumed from an older checkpoint."""
    every = ("trainer.callbacks.checkpoint.every_n_epochs=1", "trainer.check_val_every_n_epoch=1")
    last = f"ckpt_path={tmp_path}/checkpoints/last.ckpt"
    assert fit(tmp_path, *every, "trainer.max_epochs=2") == 0
    first = rows(tmp_path)
    assert fit(tmp_path, *every, "trainer.max_epochs=3", last) == 0
    assert sorted({float(row["iterations"]) for row in rows(tmp_path)}) == [0, 1, 2, 3]
    assert rows(tmp_path)[: len(first)] == first
    curve = (tmp_path / "learning_curve.png").read_bytes()
    whole = rows(tmp_path)
    assert fit(tmp_path, *every, "trainer.max_epochs=3", last) == 0
    assert rows(tmp_path) == whole and (tmp_path / "learning_curve.png").read_bytes() == curve
    assert fit(tmp_path, *every, "trainer.max_epochs=3", f"ckpt_path='{tmp_path}/checkpoints/epoch=0.ckpt'") == 0
    again = rows(tmp_path)
    same = ("iterations", "step", "rollout/reward", "val/greedy/exact/mean")
    assert [[row[name] for name in same] for row in again] == [[row[name] for name in same] for row in whole]


@pytest.mark.parametrize("content", [None, b"iterations,a\n1," + b"9" * 200_000 + b"\n", b"iterations\n\xff\n"])
def test_a_file_of_others_is_refused_by_name(content, tmp_path):
    """A pipe, on which reading would wait; a field longer than csv reads; another encoding."""
    file = tmp_path / "metrics.csv"
    os.mkfifo(file) if content is None else file.write_bytes(content)
    with pytest.raises(ValueError, match=r"metrics\.csv|utf-8"):
        read_rows(file)
