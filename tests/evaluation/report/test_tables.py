"""The table of one checkpoint: what an evaluator does not give is an empty cell."""

from mmrl.core.types import Episode, Prompt
from mmrl.evaluation.metrics.by_task import SuccessRateByTask
from mmrl.evaluation.metrics.success_rate import SuccessRate
from mmrl.evaluation.report.tables import format_rows

FAILED = [
    Episode(Prompt("suite/held_out/0", info={"task": "lift"}), 0, 0, ended="error"),
    Episode(Prompt("suite/held_out/1", info={"task": "lift"}), 1, 0, scores={"success": 1.0}),
]


def test_errors_are_printed_where_the_evaluator_counts_them_and_else_left_empty():
    ((_, rate, episodes, errors, _),) = format_rows("success", SuccessRate("success")(FAILED))
    assert (rate[:7], episodes, errors) == ("100.0 %", "1", "1")
    by_task = {row[0]: row[2:4] for row in format_rows("by_task", SuccessRateByTask("success")(FAILED))}
    assert by_task["by_task/mean"] == ("", "")
