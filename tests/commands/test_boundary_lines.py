"""The lines that `mmrl evaluate` prints about two checkpoints with several samples."""

from mmrl.commands.evaluation.boundary import describe_boundary, format_boundary
from mmrl.evaluation.boundary.comparison import compare_boundary
from tests.evaluation.boundary.test_comparison import NOW, START


def test_the_lines_say_where_the_curves_meet():
    first, second, third = describe_boundary(compare_boundary("sampled", START, NOW))
    assert first == "pass@k after is met by that before at k = 2; at k = 4 it is -50.0 points [-685.3, +585.3] (paired)"
    assert second == "sampling-efficiency gap, pass@4 before - pass@1 after: 50.0 points"
    assert third == "problems solved in 4 samples: both 1, lost 1, gained 0, neither 0"
    assert "is higher than before up to k = 4" in describe_boundary(compare_boundary("", NOW, START))[0]
    assert "is nowhere higher than before" in describe_boundary(compare_boundary("", NOW, NOW))[0]


def test_the_table_has_a_row_for_each_power_of_two():
    table = format_boundary(compare_boundary("sampled", START, NOW), "runs/mine")
    assert list(table.columns[0].cells) == ["1", "2", "4"]
    assert list(table.columns[3].cells) == ["+25.0", "+0.0", "-50.0"]
