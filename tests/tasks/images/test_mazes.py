"""Mazes: uniform trees, golden paths and scores, disjoint splits, and answers that only look right."""

from collections import Counter

import numpy as np
import pytest

from mmrl.core.rng import derive_rng
from tasks.mazes import Mazes
from tasks.mazes.maze import FLOOR, GOAL, START, WALL, Maze, draw_doors
from tasks.mazes.verify import prefix_score, verify
from tests.tasks.replies import reply


def build_maze(*doors: tuple[tuple[int, int], tuple[int, int]], goal: tuple[int, int]) -> Maze:
    return Maze(2, 3, frozenset(doors) | {(b, a) for a, b in doors}, (0, 0), goal)


# S . .   the path to the goal is R R D L
#     |
# . G .
MAZE = build_maze(((0, 0), (0, 1)), ((0, 1), (0, 2)), ((0, 2), (1, 2)), ((1, 2), (1, 1)), ((1, 1), (1, 0)), goal=(1, 1))


def test_spanning_trees_are_equally_likely():
    rng = derive_rng("trees", 0)
    counts = Counter(draw_doors(rng, 2, 3, 0) for _ in range(3000))
    assert len(counts) == 15  # by Kirchhoff's theorem
    # chi-squared over 15 cells of 200 expected; 36.1 is the 99.9 % point with 14 degrees of freedom
    assert sum((count - 200) ** 2 / 200 for count in counts.values()) < 36.1


def test_loops_open_further_walls():
    for loops in (0, 3, 99):
        doors = draw_doors(derive_rng("loops", loops), 4, 4, loops)
        assert len(doors) == 2 * min(15 + loops, 24)  # a tree of 16 cells has 15 doors, the grid 24


def test_the_picture_and_the_text_show_the_same_maze():
    assert MAZE.characters() == ["#######", "#S....#", "#####.#", "#..G..#", "#######"]
    image = MAZE.render(16)
    assert image.shape == (16, 16, 3) and image.dtype == np.uint8
    # 7 blocks of 2 pixels from column 1, 5 blocks from row 3
    assert [tuple(image[5, x].tolist()) for x in (1, 3, 5)] == [WALL, START, FLOOR]
    assert tuple(image[10, 8].tolist()) == GOAL


@pytest.mark.parametrize(
    ("text", "exact", "shortest", "progress", "prefix", "well_formed"),
    [
        ("RRDL", 1, 1, 1, 1, 1),
        ("I go around the wall.\nRRDL\n", 1, 1, 1, 1, 1),
        ("RLRRDL", 1, 0, 1, 1 / 24, 1),  # legal, longer
        ("RRD", 0, 0, 0.75, 6 / 24, 1),
        ("RRDLR", 0, 0, 0.75, 12 / 24, 1),  # passes the goal and goes on
        ("RRDLL", 0, 0, 0.75, 12 / 24, 1),
        ("RL", 0, 0, 0, 1 / 24, 1),  # legal, back at the start
        ("DRL", 0, 0, 0, 0, 1),  # through a wall
        ("RRDLUUDD", 0, 0, 0, 12 / 24, 1),  # to the goal, then into a wall
        ("RRDL RRDL", 0, 0, 0, 0, 0),
        ("rrdl", 0, 0, 0, 0, 0),
        ("RRDL" * 7, 0, 0, 0, 0, 0),  # more than 24 moves in 6 cells
        ("ＲＲＤＬ", 0, 0, 0, 0, 0),
        ("", 0, 0, 0, 0, 0),
    ],
)
def test_verify(text, exact, shortest, progress, prefix, well_formed):
    assert verify(text, MAZE, "RRDL") == {
        "exact": exact,
        "shortest": shortest,
        "progress": progress,
        "prefix": pytest.approx(prefix),
        "format": well_formed,
    }


@pytest.mark.parametrize(("path", "points"), [("RRD", 12), ("RRU", 2), ("RRDD", 6), ("U", 0)])
def test_prefix_score_of_the_paper(path, points):
    assert prefix_score(path, "RRD") == pytest.approx(points / 12)


def test_with_loops_every_shortest_path_counts():
    ring = build_maze(((0, 0), (0, 1)), ((0, 1), (1, 1)), ((1, 1), (1, 0)), ((1, 0), (0, 0)), goal=(1, 1))
    assert [verify(path, ring, ring.solve())["shortest"] for path in ("RD", "DR")] == [1, 1]


@pytest.mark.parametrize(("form", "images"), [("image", 1), ("text", 0), ("both", 1)])
def test_problems_have_the_length_and_turns_that_are_asked_for(form, images):
    task = Mazes(rows=5, columns=5, lengths=(3, 6), max_turns=2, form=form, loops=2)
    for index in range(30):
        prompt = task[index]
        assert 3 <= prompt.info["length"] == len(prompt.answer) <= 6 and prompt.info["turns"] <= 2
        assert len(prompt.images) == images and ("S" in str(prompt.messages)) == (form != "image")
        assert task.score(reply(prompt, task.demonstrate(index)))["shortest"] == 1


def test_no_walls_are_in_both_splits():
    task = Mazes(rows=3, columns=3, lengths=(1, 8))
    walls = [{task.on(split).problem(i).doors for i in range(400)} for split in ("train", "held_out")]
    assert not walls[0] & walls[1] and len(walls[0] | walls[1]) > 150  # of 192 trees


@pytest.mark.parametrize(
    "options",
    [{"rows": 1, "columns": 3}, {"lengths": (3, 2)}, {"lengths": (0, 2)}, {"loops": -1}, {"form": "?"}, {"size": 8}],
)
def test_arguments_without_problems_are_refused(options):
    with pytest.raises(ValueError, match="mazes"):
        Mazes(**options)
