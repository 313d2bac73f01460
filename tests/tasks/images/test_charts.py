"""Charts and receipts: golden pixels and answers, disjoint splits, and answers that only look right."""

import numpy as np
import pytest

from tasks.charts import Charts, Receipts
from tasks.charts.canvas import PALETTE, draw_bars, draw_line, draw_pie, draw_receipt
from tasks.charts.chart import QUESTIONS
from tasks.charts.verify import verify
from tests.tasks.replies import reply


def test_heights_of_bars_are_proportional_to_the_values():
    image = draw_bars("AB", [10, 5], 10, 100)
    heights = [(np.abs(image.astype(int) - PALETTE[i]).sum(2) == 0).sum(0).max() for i in range(2)]
    assert heights[0] == pytest.approx(84, abs=2) and heights[1] == pytest.approx(42, abs=2)


def test_points_of_a_line_are_at_the_heights_of_the_values():
    image = draw_line("ABC", [0, 10, 5], 10, 100).astype(int)
    red = (np.abs(image - PALETTE[3]).sum(2) == 0).nonzero()
    centres = [red[0][np.abs(red[1] - x) < 4].mean() for x in (28, 56, 84)]
    assert centres == pytest.approx([87, 3, 45], abs=1.5)


def test_angles_of_slices_are_the_shares_of_the_sum():
    image = draw_pie("ABC", [2, 1, 1], 10, 96).astype(int)
    areas = [(np.abs(image - PALETTE[i]).sum(2) == 0).sum() for i in range(3)]
    assert areas[1] / areas[0] == pytest.approx(0.5, abs=0.06)
    assert (np.abs(image[:, 48:] - PALETTE[0]).sum(2) == 0).sum() > 0.98 * areas[0]  # from the top, clockwise


def test_a_receipt_has_as_many_rows_of_ink_as_it_has_things():
    dark = (draw_receipt([("milk", "1.20"), ("nuts", "3.05"), ("oats", "0.80")], 96).sum(2) < 300).any(1)
    assert (dark[1:] > dark[:-1]).sum() == 3


def test_answers_of_charts_by_definition():
    task = Charts(questions=list(QUESTIONS), entries=(2, 6))
    seen = set()
    for index in range(120):
        problem = task.problem(index)
        value = dict(zip(problem.names, problem.values))
        a, b = (value[name] for name in problem.asked)
        wanted = {
            "value": a,
            "difference": max(a, b) - min(a, b),
            "sum": a + b,
            "count": len([v for v in value.values() if v > a]),
            "maximum": max(value, key=value.get),
            "minimum": min(value, key=value.get),
        }[problem.question]
        assert problem.answer == str(wanted)
        assert set(task.score(reply(task[index], task.demonstrate(index))).values()) == {1.0}
        seen.add((problem.kind, problem.question))
    assert len(seen) == 18


def test_answers_of_receipts_by_definition():
    task = Receipts()
    for index in range(60):
        problem = task.problem(index)
        prices = dict(problem.rows)
        wanted = {
            "price": f"{prices[problem.asked] / 100:.2f}",
            "total": f"{sum(prices.values()) / 100:.2f}",
            "count": str(len(prices)),
            "dearest": max(prices, key=prices.get),
        }[problem.question]
        assert problem.answer == wanted
        assert set(task.score(reply(task[index], task.demonstrate(index))).values()) == {1.0}


@pytest.mark.parametrize(
    ("text", "answer", "exact", "close", "well_formed"),
    [
        ("8", "8", 1, 1, 1),
        ("4 + 4\n8", "8", 1, 1, 1),
        ("6", "8", 0, 0.75, 1),
        ("99", "8", 0, 0, 1),
        ("8 7", "8", 0, 0, 0),
        ("8.0", "8", 0, 0, 0),
        ("-8", "8", 0, 0, 0),
        ("٨", "8", 0, 0, 0),
        ("3.20", "3.20", 1, 1, 1),
        ("3.2", "3.20", 0, 0, 0),
        ("2.40", "3.20", 0, 0.75, 1),
        ("0", "0", 1, 1, 1),
        ("B", "B", 1, 1, 1),
        ("A", "B", 0, 0, 1),
        ("A B", "B", 0, 0, 0),
        ("", "B", 0, 0, 0),
    ],
)
def test_verify(text, answer, exact, close, well_formed):
    assert verify(text, answer) == {"exact": exact, "close": pytest.approx(close), "format": well_formed}


@pytest.mark.parametrize("kind", [Charts, Receipts])
def test_no_values_are_in_both_splits(kind):
    task = kind()
    keys = [{task.split_key(task.on(s).problem(i)) for i in range(300)} for s in ("train", "held_out")]
    assert not keys[0] & keys[1]


@pytest.mark.parametrize(
    "options", [{"kinds": ["?"]}, {"questions": []}, {"entries": (2, 9)}, {"most": 3}, {"size": 8}]
)
def test_charts_without_problems_are_refused(options):
    with pytest.raises(ValueError, match="charts"):
        Charts(**options)


@pytest.mark.parametrize("options", [{"questions": ["?"]}, {"rows": (1, 2)}, {"cents": (10, 20)}, {"size": 20}])
def test_receipts_without_problems_are_refused(options):
    with pytest.raises(ValueError, match="receipts"):
        Receipts(**options)
