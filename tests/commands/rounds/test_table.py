"""The table and the plot of rounds."""

import csv

from mmrl.commands.rounds.receipts import Receipt, read_receipt, write_receipt
from mmrl.commands.rounds.schedule import StageRun
from mmrl.commands.rounds.stages import EvaluateStage, FilterStage, FitStage
from mmrl.commands.rounds.table import format_table, plot_scores, write_table

FIT = StageRun("1/fit", 1, "fit", FitStage(), "stages.fit", 1)
MEASURE = StageRun("1/measure", 1, "measure", EvaluateStage(), "stages.measure", 2, weights="1/fit")
SCORE = {"metric": "greedy/exact", "mean": 1 / 3, "lower": 0.2, "upper": 0.5, "n": 60.0}
ENDED = [
    (
        StageRun("1/keep", 1, "keep", FilterStage(reads="grow"), "stages.keep", 0),
        Receipt(rows="ab", result={"rows": 0}),
    ),
    (FIT, Receipt(note="skipped: no rows")),
    (MEASURE, Receipt(result=SCORE)),
]


def test_a_row_for_every_step_with_all_digits(tmp_path):
    with write_table(tmp_path, ENDED).open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["stage"], row["weights"], row["note"]) for row in rows] == [
        *(("keep", "", ""), ("fit", "base", "skipped: no rows"), ("measure", "1/fit", "")),
    ]
    assert float(rows[2]["mean"]) == 1 / 3 and rows[0]["rows"] == "0" and rows[1]["mean"] == ""


def test_the_printed_table_leaves_empty_columns_out():
    headers = [column.header for column in format_table(ENDED, "mine").columns]
    assert "reward" not in headers and {"mean", "note", "rows"} <= set(headers)


def test_the_plot_has_the_evaluations_and_equal_numbers_give_equal_bytes(tmp_path):
    path = plot_scores(tmp_path, ENDED, "mine")
    assert path is not None
    content = path.read_bytes()
    assert plot_scores(tmp_path, ENDED, "mine").read_bytes() == content
    other = [*ENDED[:2], (MEASURE, Receipt(result={**SCORE, "mean": 0.4}))]
    assert plot_scores(tmp_path, other, "mine").read_bytes() != content
    assert plot_scores(tmp_path / "none", ENDED[:2], "mine") is None


def test_a_receipt_is_read_as_it_was_written(tmp_path):
    receipt = write_receipt(tmp_path, Receipt("1/fit/checkpoints/last.ckpt", None, SCORE, "note"))
    assert read_receipt(tmp_path) == receipt and read_receipt(tmp_path / "none") is None
