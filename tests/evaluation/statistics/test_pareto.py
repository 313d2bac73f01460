"""Pareto fronts and dominated volumes: by hand, and against a grid of cells."""

from itertools import product

import numpy as np
import pytest

from mmrl.core.types import Episode, Prompt
from mmrl.evaluation.metrics.pareto import ParetoFront
from mmrl.evaluation.statistics.pareto import hypervolume, select_front


def test_the_front_has_what_no_point_dominates():
    points = [(0, 1), (1, 0), (0.5, 0.5), (0.5, 0.4), (0.2, 0.2), (1, 0)]
    assert select_front(points) == [0, 1, 2, 5]
    assert select_front([]) == []


def test_areas_by_hand():
    assert hypervolume([(0.5, 0.5)], (0, 0)) == 0.25
    # 1 x .2 and .5 x .3 above it: a staircase
    assert hypervolume([(1, 0.2), (0.5, 0.5), (0.4, 0.4)], (0, 0)) == pytest.approx(0.35)
    assert hypervolume([(1, 0), (0, 1)], (0, 0)) == 0 and hypervolume([], (0, 0)) == 0
    assert hypervolume([(1, 0), (0, 1)], (-1, -1)) == pytest.approx(3)
    assert hypervolume([(0.3,), (0.7,)], (0.2,)) == pytest.approx(0.5)


@pytest.mark.parametrize("dims", [2, 3, 4])
def test_volumes_are_the_cells_below_a_point(dims):
    rng = np.random.default_rng(dims)
    size = 5
    points = rng.integers(0, size + 1, (7, dims))
    cells = sum(
        any(all(c < p for c, p in zip(cell, point)) for point in points) for cell in product(range(size), repeat=dims)
    )
    assert hypervolume([tuple(map(float, p)) for p in points], [0.0] * dims) == pytest.approx(cells)


def episode(value, ended="done", **scores):
    return Episode(Prompt("t/0", info={"preference": value}), 0, 0, scores=scores, ended=ended)


def test_the_evaluator_takes_means_of_each_value():
    episodes = [
        episode("a", x=1.0, y=0.1),
        episode("a", x=1.0, y=0.3),
        episode("b", x=0.5, y=0.5),
        episode("b", "error"),
    ]
    metrics = ParetoFront(["x", "y"], "preference")(episodes)
    assert metrics == pytest.approx(
        {"hypervolume": 0.35, "front": 2, "points": 2, "a/x": 1, "a/y": 0.2, "b/x": 0.5, "b/y": 0.5, "errors": 1}
    )
    assert ParetoFront(["x", "y"])(episodes)["points"] == 1
    with pytest.raises(KeyError, match=r"has no info 'level'; it has \['preference'\]"):
        ParetoFront(["x", "y"], "level")(episodes)
    with pytest.raises(KeyError, match="no score 'z'"):
        ParetoFront(["x", "z"], "preference")(episodes)


@pytest.mark.parametrize("options", [{"scores": ["x"]}, {"scores": "xy"}, {"scores": ["x", "y"], "reference": [0]}])
def test_wrong_arguments_are_refused(options):
    with pytest.raises(ValueError, match="evaluator"):
        ParetoFront(**options)
