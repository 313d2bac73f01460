"""Sudoku and list functions: solutions against brute force, traces with a chosen number of dead ends, and verdicts."""

from itertools import product

import pytest

from tasks.puzzles import ListFunctions, Sudoku
from tasks.puzzles.list_functions import FUNCTIONS, FunctionSearch, apply_functions
from tasks.puzzles.sudoku import SudokuSearch, list_peers, read_grid, write_grid
from tests.tasks.replies import reply

GRID = tuple(int(c) if c != "." else 0 for c in "1.....212.4.3..2")
TASKS = [Sudoku(count=200), ListFunctions(count=200)]
both = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)


def is_valid(grid):
    """Rows, columns and boxes of a filled grid have all four digits."""
    rows = [grid[4 * i : 4 * i + 4] for i in range(4)]
    boxes = [[grid[4 * (2 * a + i) + 2 * b + j] for i in (0, 1) for j in (0, 1)] for a in (0, 1) for b in (0, 1)]
    return all(sorted(part) == [1, 2, 3, 4] for part in (*rows, *zip(*rows), *boxes))


def test_the_solution_of_a_grid_is_the_only_one_of_all_fillings():
    empty = [cell for cell, digit in enumerate(GRID) if not digit]
    solutions = []
    rows = [p for p in product(range(1, 5), repeat=4) if len(set(p)) == 4]
    fits = [[r for r in rows if all(g in (0, d) for g, d in zip(GRID[4 * i : 4 * i + 4], r))] for i in range(4)]
    for choice in product(*fits):
        grid = sum(choice, ())
        if is_valid(grid):
            solutions.append(grid)
    assert len(empty) == 9 and [write_grid(grid) for grid in solutions] == ["1234 4321 2143 3412"]
    path = SudokuSearch(GRID).solve()
    assert path[-1].state == solutions[0] and [step.line for step in path][:2] == ["b1=2", "c1=3"]
    for place, failed in SudokuSearch(GRID).list_failures(path):
        assert not SudokuSearch(GRID).steps(failed[-1].state) and 0 in failed[-1].state
        assert failed[0].line != path[place].line


def test_peers_are_row_column_and_box():
    assert set(list_peers(5)) == {4, 5, 6, 7, 1, 9, 13, 0}  # the box of cell 5 has 0, 1, 4 and 5
    assert read_grid("1234 4321 2143 3412")[4:8] == (4, 3, 2, 1)


def test_functions_by_hand_and_all_answers_that_are_right():
    assert {name: function("3902") for name, function in FUNCTIONS.items()} == {
        **{"d": "902", "f": "2390", "i": "4013", "r": "2093", "s": "0239"}
    }
    assert apply_functions("dr", "123") == "32" and apply_functions("rd", "123") == "21"  # the first letter is first
    task = TASKS[1]
    for index in range(20):
        prompt = task[index]
        before, after = prompt.info["before"], prompt.info["after"]
        right = {a + b for a, b in product("dfirs", repeat=2) if apply_functions(a + b, before) == after}
        assert prompt.answer in right
        for a, b in product("dfirs", repeat=2):
            assert task.verify(a + b, prompt) == {"exact": float(a + b in right), "format": 1.0}


@both
@pytest.mark.parametrize("backtracks", [0, 1, 5, 10])
def test_a_trace_has_as_many_dead_ends_as_asked_for_and_the_same_answer(task, backtracks):
    other = type(task)(count=200, backtracks=backtracks)
    for index in range(3):
        prompt, text, plain = other[index], other.demonstrate(index), task.demonstrate(index)
        episode = reply(prompt, text)
        assert other.score(episode)["exact"] == 1 and episode.info["counts"]["backtracks"] == backtracks
        lines = [line for line in text.splitlines() if not line.startswith("back")]
        assert text.splitlines()[-1] == plain.splitlines()[-1] == prompt.answer
        # the lines of the search without dead ends stand in the one with them, in order
        position = 0
        for line in plain.splitlines():
            position = lines.index(line, position) + 1
        if not backtracks:
            assert text == plain


@both
def test_a_mismatched_demonstration_is_that_of_the_following_problem(task):
    other = type(task)(count=200, backtracks=2, mismatched=True)
    assert other.demonstrate(0) == type(task)(count=200, backtracks=2).demonstrate(1)


@both
def test_no_problem_is_in_both_splits(task):
    keys = [{part.split_key(part.problem(i)) for i in range(15)} for part in (task, task.on("held_out"))]
    assert not keys[0] & keys[1]


def test_dead_ends_of_functions_do_not_reach_the_list():
    search = FunctionSearch("312", "321", 2)
    solution = search.solve()
    assert apply_functions(solution[-1].state[1], "312") == "321"
    for place, failed in search.list_failures(solution):
        assert failed[-1].state[0] != "321" and place in (0, 1)


@pytest.mark.parametrize(
    ("text", "exact", "cells", "form"),
    [
        ("1234 4321 2143 3412", 1, 1, 1),
        ("b1=2\n1234 4321 2143 3412", 1, 1, 1),
        ("1234 4321 2143 3421", 0, 0, 1),  # the given 2 at the end is lost
        ("1234 4321 2143 3142", 0, 7 / 9, 1),
        ("1234432121433412", 0, 0, 0),
        ("1234 4321 2143 3415", 0, 0, 0),
        ("", 0, 0, 0),
    ],
)
def test_verdicts_of_a_grid(text, exact, cells, form):
    prompt = TASKS[0].write_prompt(GRID, "sudoku/train/0")
    assert TASKS[0].verify(text, prompt) == {"exact": exact, "cells": pytest.approx(cells), "format": form}


@pytest.mark.parametrize("kind", [Sudoku, ListFunctions])
def test_refusals(kind):
    for wrong in ({"backtracks": 11}, {"backtracks": 1, "steps": False}, {"question": "?"}):
        with pytest.raises(ValueError, match=kind.name):
            kind(**wrong)
