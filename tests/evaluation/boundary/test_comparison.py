"""The reasoning boundary of two policies: numbers by hand, and every subset of samples counted."""

import math
from itertools import combinations
from statistics import mean

import pytest
from matplotlib.figure import Figure

from mmrl.core.types import Episode, Prompt
from mmrl.evaluation.boundary.comparison import (
    accuracy_histogram,
    compare_boundaries,
    compare_boundary,
    count_solved,
    find_crossing,
    pass_curve,
)
from mmrl.evaluation.boundary.evaluator import ReasoningBoundary
from mmrl.evaluation.boundary.figure import draw_accuracies, draw_solved, save_boundary
from mmrl.evaluation.metrics.success_rate import SuccessRate


def sampled(*problems, ended="done", task=None):
    """Episodes of one list of 0 and 1 per problem."""
    return [
        Episode(Prompt(f"t/held_out/{i}", info={"task": task}), i, k, scores={"exact": float(right)}, ended=ended)
        for i, samples in enumerate(problems)
        for k, right in enumerate(samples)
    ]


# start: each problem is solved by 1 of 4 samples; now: one always, one never
START, NOW = sampled([1, 0, 0, 0], [0, 0, 1, 0]), sampled([1, 1, 1, 1], [0, 0, 0, 0])


def test_the_curve_of_a_problem_by_hand():
    # n = 10, c = 3: 3/10; 1 - 7/10 6/9 6.. : 1 - C(7, 5)/C(10, 5) = 1 - 21/252; certain from k = 8 on
    curve = pass_curve(10, 3, 10)
    assert curve[0] == pytest.approx(0.3) and curve[4] == pytest.approx(0.916667, abs=1e-6)
    assert curve[7:] == [1.0, 1.0, 1.0] and curve[6] < 1
    assert pass_curve(10, 0, 5) == [0.0] * 5 and pass_curve(4, 2, 2)[1] == pytest.approx(5 / 6)
    for numbers in ((4, 5, 2), (4, 1, 5), (4, 1, 0)):
        with pytest.raises(ValueError, match="needs 0 <= c <= n and 1 <= k <= n"):
            pass_curve(*numbers)


def test_the_curve_is_the_share_of_subsets_with_a_right_one():
    for n in range(1, 7):
        for c in range(n + 1):
            samples = [True] * c + [False] * (n - c)
            shares = [mean(map(any, combinations(samples, k))) for k in range(1, n + 1)]
            assert pass_curve(n, c, n) == pytest.approx(shares)


def test_a_curve_of_many_samples_is_stable():
    # 1 right of 4096: pass@k = k / 4096
    assert pass_curve(4096, 1, 4096)[1023] == pytest.approx(0.25, abs=1e-12)


def test_the_crossing_by_hand():
    assert find_crossing([0.2, 0.5, 0.8], [0.4, 0.5, 0.6]) == 2
    assert find_crossing([0.2, 0.6, 0.7, 0.9], [0.4, 0.5, 0.8, 0.9]) == 4  # ahead at 1 and 3, and last at 3
    assert find_crossing([0.5, 0.6], [0.5, 0.5]) == 1
    assert math.isnan(find_crossing([0.2, 0.5], [0.4, 0.6]))


def test_the_comparison_by_hand():
    boundary = compare_boundary("sampled", START, NOW)
    # start: pass@k = k/4; now: 1/2 at every k
    assert boundary.before == pytest.approx([0.25, 0.5, 0.75, 1.0]) and boundary.after == [0.5] * 4
    assert boundary.crossing == 2 and boundary.efficiency_gap == 0.5 and boundary.ks == [1, 2, 4]
    assert boundary.solved == {"both": 1, "lost": 1, "gained": 0, "neither": 0}
    # differences at k = 4 are 0 and -1: mean -1/2, s = sqrt(1/2), t(0.975, 1) = 12.7062: half = 12.7062 / 2
    assert boundary.difference == pytest.approx((-0.5, -0.5 - 6.3531, -0.5 + 6.3531), abs=1e-4)
    other = compare_boundary("sampled", NOW, START)
    assert math.isnan(other.crossing) and other.efficiency_gap == 0.25 and other.solved["gained"] == 1
    assert other.plain()["crossing"] is None and other.plain()["pass"]["after"][-1] == 1.0


def test_problems_are_counted_by_accuracy_and_by_who_solves_them():
    assert accuracy_histogram([0, 0.1, 0.2, 0.21, 0.6, 0.6000001, 0.99, 1, 1]) == [1, 2, 1, 1, 1, 1, 2]
    assert accuracy_histogram([k / 5 for k in range(6)]) == [1, 1, 1, 1, 1, 0, 1]
    assert count_solved([0.1, 0, 0.5, 0], [0.2, 0.3, 0, 0]) == {"both": 1, "lost": 1, "gained": 1, "neither": 1}


def test_problems_without_enough_finished_samples_are_left_out():
    now = sampled([1, 1, 1, 1], [0, 0, 0, 0])
    now[7].ended = "error"
    boundary = compare_boundary("sampled", START, now)
    assert boundary.left_out == 1 and boundary.after == [1.0] * 4 and boundary.largest == 4
    for episode in now:
        episode.ended = "error"
    nothing = compare_boundary("sampled", START, now)
    assert nothing.left_out == 2 and math.isnan(nothing.crossing) and math.isnan(nothing.difference[0])
    with pytest.raises(ValueError, match="no problem in common"):
        compare_boundary("sampled", START, [Episode(Prompt("t/held_out/9"), 9, 0, scores={"exact": 1.0})])


def test_tasks_are_compared_one_by_one_and_together():
    start = sampled([1, 0], task="sums") + [
        Episode(Prompt("t/held_out/7", info={"task": "words"}), 7, k, scores={"exact": float(k)}) for k in (0, 1)
    ]
    parts = compare_boundaries({"sampled": start}, {"sampled": start}, {"exact": SuccessRate()})["exact"]
    assert [part.label for part in parts] == ["sampled, sums", "sampled, words", "sampled"]
    assert [len(part.differences) for part in parts] == [1, 1, 2] and parts[-1].crossing == 1


def test_the_evaluator_in_a_run():
    evaluator = ReasoningBoundary()
    assert evaluator(START) == pytest.approx({"pass@1": 0.25, "pass@4": 1.0, "solved": 2, "errors": 0})
    numbers = evaluator.against(START, NOW)
    assert (numbers["crossing"], numbers["efficiency_gap"], numbers["lost"]) == (2, 0.5, 1)
    assert not any(name.startswith("perplexity") for name in numbers)
    with pytest.raises(ValueError, match="no episodes"):
        evaluator([])
    with pytest.raises(ValueError, match="level"):
        ReasoningBoundary(level=2.0)


def test_it_is_drawn(tmp_path):
    boundary = compare_boundary("sampled", START, NOW)
    axes = Figure().subplots(1, 3)
    assert ReasoningBoundary().plot(axes[0], START, NOW)
    draw_accuracies(axes[1], boundary)
    draw_solved(axes[2], boundary)
    lines = axes[0].get_lines()
    assert list(lines[0].get_ydata()) == pytest.approx([0.25, 0.5, 0.75, 1.0])
    assert list(lines[4].get_xdata()) == [2, 2]  # where the curves meet
    assert [bar.get_height() for bar in axes[2].patches] == [1, 1, 0, 0]
    assert save_boundary(boundary, "title", tmp_path / "a.png").stat().st_size > 10_000
