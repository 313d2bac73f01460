"""Stages: which kinds an iteration gets, each problem once in a permutation, and where a resumed run goes on."""

import pytest

from mmrl.curricula.stages import Stages
from tests.curricula.test_prioritised import Kinds, at
from tests.curricula.test_stratified import Plainly

LAWS = [lambda: Stages([["a"], ["b"]], [2, 2])]


def build() -> Stages:
    return Stages([["push"], ["reach"], ["push", "reach"]], [2, 3, 1], "task")


def test_kinds_follow_each_other_at_the_iterations_that_are_given():
    curriculum, task = build(), Kinds(16)  # 4 pushes, 12 reaches
    chosen = [curriculum.select(4, at(iteration, task)) for iteration in range(9)]
    kinds = [{task[index].info["task"] for index in indices} for indices in chosen]
    assert kinds[:5] == [{"push"}] * 2 + [{"reach"}] * 3
    assert [curriculum.stage(i) for i in range(9)] == [0, 0, 1, 1, 1, 2, 2, 2, 2]  # the last one lasts
    assert set(chosen[0]) == set(chosen[1]) == {0, 4, 8, 12}  # a permutation each
    assert sorted(index for indices in chosen[2:5] for index in indices) == [i for i in range(16) if i % 4]
    assert sorted(index for indices in chosen[5:9] for index in indices) == list(range(16))
    assert chosen != [Stages.select(build(), 4, at(iteration, task)) for iteration in range(9)]


def test_a_resumed_run_goes_on_in_its_permutation():
    whole, task = build(), Kinds(16)
    chosen = [whole.select(3, at(iteration, task)) for iteration in range(6)]
    for stop in range(1, 6):
        first, again = build(), build()
        for iteration in range(stop):
            first.select(3, at(iteration, task))
        again.load_state_dict(first.state_dict())
        assert [again.select(3, at(iteration, task)) for iteration in range(stop, 6)] == chosen[stop:]


def test_what_cannot_be_selected_is_refused():
    with pytest.raises(ValueError, match=r"no problem of task 'numbers' has one of \['stack'\] as its info 'task'"):
        Stages([["stack"]], [1], "task").select(1, at(0, Kinds(8)))
    with pytest.raises(ValueError, match="has no info 'task'"):
        Stages([["push"]], [1], "task").select(1, at(0, Plainly(8)))
    for stages, iterations in (([], []), ([[]], [1]), ([["push"]], [1, 2])):
        with pytest.raises(ValueError, match="stages needs at least one kind"):
            Stages(stages, iterations)
    with pytest.raises(ValueError, match="iterations"):
        Stages([["push"]], [0])
