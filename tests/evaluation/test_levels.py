"""Mastery over a level space: shares by hand, and what the plot shows."""

import pytest
from matplotlib.figure import Figure

from mmrl.core.types import Episode, Prompt
from mmrl.evaluation.levels import LevelMastery


def played(*rows, names=("x", "y"), ended="done"):
    """An episode for each (score, values of the level)."""
    return [
        Episode(
            Prompt(f"climb/held_out/{i}"),
            i,
            0,
            ended=ended,
            scores={"return": score, **{f"level/{name}": value for name, value in zip(names, values)}},
        )
        for i, (score, *values) in enumerate(rows)
    ]


# four levels; that of (0, 1) has the returns 1 and 3, whose mean is 2
EPISODES = played((5.0, 0, 0), (1.0, 0, 1), (3.0, 0, 1), (0.0, 1, 0), (2.5, 1, 1))


def test_shares_by_hand():
    errors = played((9.0, 1, 0), ended="error")
    # of the means 5, 2, 0 and 2.5 two reach 2.5, and three reach 2
    assert LevelMastery(2.5)(EPISODES + errors) == {"mean": 0.5, "score": 9.5 / 4, "n": 4.0, "errors": 1.0}
    assert LevelMastery(2.0)(EPISODES)["mean"] == 0.75
    assert LevelMastery(2.0).means(EPISODES) == {(0, 0): 5.0, (0, 1): 2.0, (1, 0): 0.0, (1, 1): 2.5}
    # over x alone: (5 + 1 + 3) / 3 and (0 + 2.5) / 2
    assert LevelMastery(2.0).means(EPISODES, ["x"]) == {(0,): 3.0, (1,): 1.25}


def test_the_map_has_the_means_as_cells_and_a_dot_on_what_is_mastered():
    axes = Figure().add_subplot()
    assert LevelMastery(2.5).plot(axes, EPISODES, EPISODES)
    (cells,) = axes.collections
    assert cells.get_array().tolist() == [[5.0, 0.0], [2.0, 2.5]]  # rows are y, columns x
    (dots,) = axes.lines
    assert dots.get_xydata().tolist() == [[0, 0], [1, 1]]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("x", "y")


def test_one_parameter_is_a_line_of_start_and_end():
    axes = Figure().add_subplot()
    start, now = played((0.0, 1), (1.0, 2), names=["x"]), played((2.0, 2), (3.0, 1), names=["x"])
    assert LevelMastery(2.5).plot(axes, start, now)
    first, last, threshold = axes.lines
    assert first.get_xydata().tolist() == [[1, 0], [2, 1]] and last.get_xydata().tolist() == [[1, 3], [2, 2]]
    assert list(threshold.get_ydata()) == [2.5, 2.5]
    axes = Figure().add_subplot()
    assert LevelMastery(2.5, axes=["y"]).plot(axes, EPISODES, EPISODES) and axes.get_xlabel() == "y"
    assert not LevelMastery(2.5).plot(axes, EPISODES, played((1.0, 0, 0), ended="error"))


def test_what_is_missing_is_named():
    with pytest.raises(ValueError, match=r"reports no level.*take task=levels sim=levels"):
        LevelMastery(1.0)([Episode(Prompt("climb/held_out/0"), 0, 0, scores={"return": 1.0})])
    with pytest.raises(ValueError, match=r"axes has \['z'\], but the parameters of the levels are \['x', 'y'\]"):
        LevelMastery(1.0, axes=["x", "z"]).plot(Figure().add_subplot(), EPISODES, EPISODES)
    with pytest.raises(ValueError, match="one or two parameters"):
        LevelMastery(1.0, axes=["x", "y", "z"])
