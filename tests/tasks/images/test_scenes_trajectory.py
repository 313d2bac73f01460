"""Trajectories: golden distances, an enumeration of all ways along two paths, and what the verifier refuses."""

import itertools
import math
from functools import cache

import numpy as np
import pytest

from tasks.scenes import Trajectory
from tasks.scenes.frechet import WORST, frechet_score, oriented_frechet
from tasks.scenes.trajectory import read_path
from tests.tasks.replies import reply

LINE = [(0.1, 0.5), (0.5, 0.5), (0.9, 0.5)]


def test_distances_by_hand():
    """WORST is 1.414214 + .785398 + .230259; backwards the first points are .8 and half a turn apart."""
    assert pytest.approx(2.429871, abs=1e-6) == WORST
    assert (oriented_frechet(LINE, LINE), frechet_score(LINE, LINE)) == (0, 1)
    shifted = [(x, y + 0.1) for x, y in LINE]
    assert oriented_frechet(LINE, shifted) == pytest.approx(0.1)
    assert frechet_score(LINE, shifted) == pytest.approx(0.958846, abs=1e-6)
    assert oriented_frechet(LINE, LINE[::-1]) == pytest.approx(0.8 + math.pi / 4)
    assert frechet_score(LINE, LINE[::-1]) == pytest.approx(0.347538, abs=1e-6)
    # the ends meet, and the steps are .4 and .8 long: the middle is .4 away, with the ratio ln 2
    assert oriented_frechet(LINE, [LINE[0], LINE[2]]) == pytest.approx(0.4 + 0.1 * math.log(2))
    right_angle = [(0.1, 0.5), (0.1, 0.9)]
    assert oriented_frechet(LINE[:2], right_angle) == pytest.approx(math.dist((0.5, 0.5), (0.1, 0.9)) + math.pi / 8)
    assert frechet_score(LINE, [(0.1, 0.5), (0.1, 0.5)]) == 0  # no direction, and a step of no length


def angle(u, v):
    if not any(u) or not any(v):
        return 0.0
    return abs((math.atan2(u[1], u[0]) - math.atan2(v[1], v[0]) + math.pi) % (2 * math.pi) - math.pi)


def tangent(points, i):
    """The sum of the unit steps that meet at a point, as a complex number's parts."""
    steps = [complex(*b) - complex(*a) for a, b in itertools.pairwise(points)]
    units = [step / abs(step) for step in steps]
    near = units[max(i - 1, 0) : i + 1]
    total = sum(near) if abs(sum(near)) > 1e-12 else near[0]
    return total.real, total.imag


def enumerate_distance(path, other):
    """The least, over every way to go along both paths, of its largest cost."""

    def cost(i, j):
        paces = [math.dist(*points[k : k + 2]) for points, k in ((path, min(i, len(path) - 2)),
                                                                 (other, min(j, len(other) - 2)))]  # fmt: skip
        turn = angle(tangent(path, i), tangent(other, j))
        return math.dist(path[i], other[j]) + turn / 4 + abs(math.log(paces[0] / paces[1])) / 10

    @cache
    def ways(i, j):
        if (i, j) == (0, 0):
            return [[(0, 0)]]
        before = [(i - 1, j), (i, j - 1), (i - 1, j - 1)]
        return [[*way, (i, j)] for a, b in before if a >= 0 and b >= 0 for way in ways(a, b)]

    return min(max(cost(i, j) for i, j in way) for way in ways(len(path) - 1, len(other) - 1))


def test_the_distance_is_the_least_over_all_ways_along_both_paths():
    rng = np.random.default_rng(0)
    for _ in range(60):
        path, other = ([tuple(map(float, point)) for point in rng.random((rng.integers(2, 5), 2))] for _ in range(2))
        assert oriented_frechet(path, other) == pytest.approx(enumerate_distance(path, other))
        assert oriented_frechet(path, other) == pytest.approx(oriented_frechet(other, path))
        assert 0 <= frechet_score(path, other) < 1


def test_paths_go_from_the_middle_of_one_object_to_that_of_another():
    task = Trajectory(describe="colour", waypoints=4)
    for index in range(30):
        prompt = task[index]
        first, goal = prompt.info["shapes"][:2]
        assert (
            prompt.messages[0]["content"][1]["text"]
            == f"Path from the {first.colour} shape to the {goal.colour} shape?"
        )
        for thing, end in ((first, prompt.answer[0]), (goal, prompt.answer[-1])):
            x1, y1, x2, y2 = thing.box
            assert abs(end[0] - (x1 + x2) / 2) <= 0.5 and abs(end[1] - (y1 + y2) / 2) <= 0.5
        steps = np.diff(np.array(prompt.answer), axis=0)
        assert len(steps) == 3 and (abs(steps - steps.mean(0)) < 1.5).all()  # two roundings of a half
        expert = task.demonstrate(index)
        assert task.score(reply(prompt, expert)) == {"exact": 1, "frechet": 1, "format": 1}
        backwards = "; ".join(expert.split("; ")[::-1])
        assert task.score(reply(prompt, backwards))["frechet"] < 0.7


@pytest.mark.parametrize("text", ["", "1 2", "1 2;3 4", "1 2, 3 4", "1 2; 3", "1 2; 3 99", "1 2; -3 4", "1 2; 3 4; ",
                                  "; ".join(["1 2"] * 17)])  # fmt: skip
def test_what_is_no_path_earns_nothing(text):
    assert read_path(text, 64) is None
    task = Trajectory()
    assert task.score(reply(task[0], text)) == {"exact": 0, "frechet": 0, "format": 0}
    assert read_path("1 2; 3 4", 64) == ((1, 2), (3, 4))


@pytest.mark.parametrize("wrong", [{"waypoints": 1}, {"waypoints": 17}, {"distractors": (0, 1)}, {"question": "{}?"}])
def test_arguments_without_paths_are_refused(wrong):
    with pytest.raises(ValueError, match="scenes_trajectory"):
        Trajectory(**wrong)
