"""Filters and pairs of rows, with results worked by hand."""

import pytest

from mmrl.commands.rounds.filters import filter_rows
from mmrl.commands.rounds.stages import FilterStage
from mmrl.core.errors import ConfigError


def row(reward, key="p/train/0", completion=None, ended="done", **scores):
    text = f"{reward}" if completion is None else completion
    return {
        **{"key": key, "index": int(key.rsplit("/", 1)[1]), "sample_index": 0, "prompt": [], "completion": text},
        **{"ended": ended, "tokens": 1, "scores": scores, "reward": reward},
    }


REST = [row(reward) for reward in (0.1, 0.65, 0.72, 0.91, 0.97)]


@pytest.mark.parametrize(
    ("threshold", "numbers"),
    [(0.0, [0, 1, 2, 3, 4]), (0.7, [2, 3, 4]), (0.9, [3, 4]), (0.95, [4]), (0.99, [])],
)
def test_the_thresholds_of_rest(threshold, numbers):
    """Rewards .1, .65, .72, .91, .97: those at or above the threshold stay; at .99 none is left."""
    assert filter_rows(FilterStage(min={"reward": threshold}), REST, 0) == [REST[number] for number in numbers]


def test_a_quantile_keeps_the_rows_at_its_threshold():
    """The median of .1, .65, .72, .91, .97 is .72."""
    assert filter_rows(FilterStage(quantile=0.5), REST, 0) == REST[2:]
    assert filter_rows(FilterStage(quantile=0.5), [], 0) == []


def test_scores_are_named_and_a_missing_one_is_refused():
    rows = [row(0, exact=1.0), row(1, exact=0.0)]
    assert filter_rows(FilterStage(min={"exact": 1}), rows, 0) == rows[:1]
    assert filter_rows(FilterStage(max={"reward": 0}), rows, 0) == rows[:1]
    with pytest.raises(ConfigError, match=r"stages\.keep\.min: 'p/train/0' has no score 'format'.*\['exact'\]"):
        filter_rows(FilterStage(min={"format": 1}), rows, 0, "stages.keep")


def test_rejection_sampling_keeps_one_of_equal_completions_and_the_best_of_a_problem():
    rows = [row(0.5, completion="a"), row(0.5, completion="a"), row(0.9, completion="b"), row(0.2, "p/train/1", "a")]
    assert filter_rows(FilterStage(distinct=True), rows, 0) == [rows[0], rows[2], rows[3]]
    assert filter_rows(FilterStage(best=1), rows, 0) == [rows[2], rows[3]]


def test_completions_that_were_cut_off_or_failed_are_no_answers():
    rows = [row(1, ended="length"), row(1, ended="error"), row(1, completion=""), row(1)]
    assert filter_rows(FilterStage(), rows, 0) == rows[3:]
    assert filter_rows(FilterStage(cut=True), rows, 0) == [rows[0], rows[3]]


def test_a_share_of_the_problems_that_all_samples_solve_stays():
    """Problem 0 has a wrong sample, problem 1 none: it is left out whole, for about half of the seeds."""
    rows = [row(1), row(0), row(1, "p/train/1", "a"), row(1, "p/train/1", "b")]
    stays = 0
    for seed in range(100):
        result = filter_rows(FilterStage(min={"reward": 1}, solved=0.5), rows, seed)
        assert result in ([rows[0]], [rows[0], *rows[2:]])
        stays += len(result) > 1
    assert 35 < stays < 65
    assert filter_rows(FilterStage(min={"reward": 1}, solved=0.0), rows, 0) == [rows[0]]
    with pytest.raises(ValueError, match="solved"):
        FilterStage(pairs="best_worst", solved=0.5)


def pair(stage, rows, seed=0):
    return [(each["key"], each["chosen"], each["rejected"]) for each in filter_rows(stage, rows, seed)]


def test_pairs_of_the_best_and_the_worst():
    """Problem 0: .9 against .1. Problem 1: all equal, no pair. Problem 2: .3 apart, dropped by a margin of .5."""
    rows = [
        *(row(0.4), row(0.9), row(0.1)),
        *(row(0.5, "p/train/1", "a"), row(0.5, "p/train/1", "b")),
        *(row(0.2, "p/train/2"), row(0.5, "p/train/2")),
    ]
    assert pair(FilterStage(pairs="best_worst"), rows) == [("p/train/0", "0.9", "0.1"), ("p/train/2", "0.5", "0.2")]
    assert pair(FilterStage(pairs="best_worst", margin=0.5), rows) == [("p/train/0", "0.9", "0.1")]


def test_pairs_of_the_best_and_one_of_the_lower():
    """The rejected one is drawn from all that are lower, here .1 and .4, by the seed alone."""
    rows = [row(0.4), row(0.9), row(0.1)]
    pairs = {pair(FilterStage(pairs="best_lower"), rows, seed)[0] for seed in range(20)}
    assert pairs == {("p/train/0", "0.9", "0.1"), ("p/train/0", "0.9", "0.4")}
    assert pair(FilterStage(pairs="best_lower"), rows, 3) == pair(FilterStage(pairs="best_lower"), rows, 3)


def test_a_completion_that_was_cut_off_is_the_worse_one_of_a_pair_only():
    rows = [row(0.9, ended="length"), row(0.4), row(0.1, ended="length")]
    assert pair(FilterStage(pairs="best_worst"), rows) == [("p/train/0", "0.4", "0.1")]
