"""Without a terminal a run prints one line per iteration, with the numbers of metrics.csv."""

import csv
import re

import pytest

from mmrl.callbacks.progress import STAGE, format_iteration
from tests.tiny_recipes import fit

PLAIN = ("trainer.callbacks.progress={_target_: mmrl.callbacks.progress.Progress}", "trainer.enable_progress_bar=true")


def test_a_run_prints_one_line_per_iteration(tmp_path, capsys):
    logger = f"trainer.logger={{csv: {{_target_: mmrl.runs.metrics_csv.MetricsCSV, run_dir: '{tmp_path}'}}}}"
    fit(tmp_path, *PLAIN, logger, "trainer.max_epochs=3", "trainer.check_val_every_n_epoch=2")
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("iteration ")]
    with (tmp_path / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["rollout/reward"]]
    assert len(lines) == len(rows) == 3
    for number, (line, row) in enumerate(zip(lines, rows)):
        assert line.startswith(f"iteration {number}/2: reward {float(row['rollout/reward']):.4g}, length ")
        assert re.search(rf", kl {float(row['train/policy/kl']):.3g}, clip_fraction \S+, \S+ s(,|$)", line)
        assert ("held-out greedy/exact" in line) == (number == 1)


def test_the_start_has_its_held_out_numbers_and_a_stage_its_name(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv(STAGE, "sft")
    fit(tmp_path, *PLAIN, "trainer.max_epochs=1")
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"sft: start: held-out greedy/exact \S+ \[\S+, \S+\]", first)
    assert second.startswith("sft: iteration 0/0: reward ")


@pytest.mark.parametrize(
    "metrics, expected",
    [
        ({"rollout/reward": 0.5, "rollout/errors": 0.0, "rollout/truncated_fraction": 0.0}, "reward 0.5, 2 s"),
        ({"rollout/reward": 0.5, "rollout/errors": 3.0}, "reward 0.5, errors 3, 2 s"),
        ({"train/actor/kl": 0.01, "train/critic/kl": 0.02}, "actor/kl 0.01, critic/kl 0.02, 2 s"),
        ({"train/policy/kl": 1 / 3, "train/policy": 5.0}, "kl 0.333, 2 s"),
    ],
)
def test_the_parts_of_a_line(metrics, expected):
    assert format_iteration(metrics, 2.0, {}) == expected


def test_rates_have_their_interval_and_counts_are_left_out():
    rate = {
        f"val/greedy/exact/{name}": value for name, value in zip(("mean", "lower", "upper", "n"), (0.5, 0.4, 0.6, 99))
    }
    line = format_iteration({}, 1.0, {**rate, "val/greedy/length/mean": 7.0, "val/loss": 0.25})
    assert line == "1 s, held-out greedy/exact 0.5 [0.4, 0.6], greedy/length 7, loss 0.25"
