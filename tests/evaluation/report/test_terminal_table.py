import io
import json

import pytest
from rich.console import Console

from mmrl.evaluation.report.terminal_table import CheckpointComparison, RateEstimate, format_table, to_json

BETTER = CheckpointComparison("argmax", RateEstimate(95, 100), RateEstimate(490, 500))
CLEAR = CheckpointComparison("mean", RateEstimate(100, 500), RateEstimate(490, 500, errors=2), "push")


def test_measured_shows_percent_and_interval():
    assert str(RateEstimate(95, 100)) == "95.0 % [88.8, 97.8]"
    assert str(RateEstimate(490, 500)) == "98.0 % [96.4, 98.9]"
    with pytest.raises(ValueError, match="at least one episode"):
        RateEstimate(0, 0)
    assert str(RateEstimate(0, 0, errors=3)) == "none finished"


def test_disjoint_intervals():
    assert CLEAR.disjoint and not BETTER.disjoint  # 97.8 is above 96.4


def test_terminal_table_shows_every_cell():
    text = io.StringIO()
    Console(file=text, width=100).print(format_table([CLEAR, BETTER], "reach"))
    shown = text.getvalue()
    for cell in ("reach", *CLEAR.cells, *BETTER.cells, "Wilson 95 % interval"):
        assert cell in shown


def test_json_holds_the_numbers_that_make_the_table_again():
    (row,) = json.loads(to_json([CLEAR]))
    assert row["decode"] == "mean" and row["disjoint"] is True
    names = ("successes", "episodes", "level", "errors")
    sides = [RateEstimate(*(row[side][name] for name in names)) for side in ("before", "after")]
    assert CheckpointComparison(row["decode"], *sides, row["task"]) == CLEAR
    assert (row["after"]["lower"], row["after"]["upper"]) == CLEAR.after.interval
    assert row["after"]["rate"] == 0.98


def test_levels_are_not_mixed_in_one_table():
    with pytest.raises(ValueError, match="all with intervals of one level"):
        format_table([CheckpointComparison("mean", RateEstimate(1, 2), RateEstimate(1, 2, level=0.99))])
    with pytest.raises(ValueError, match="a table needs rows"):
        format_table([])
