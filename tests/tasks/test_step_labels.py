"""Labelled steps: labels against the verifier and by running completed programs, and the share that is wrong."""

import json
from dataclasses import replace

import pytest

from tasks.code import Code
from tasks.code.generator import run_trusted
from tasks.code.labelled import LabelledPrograms, count_shared
from tasks.graphs import Graphs
from tasks.graphs.labelled import LabelledGraphs
from tasks.graphs.verify import judge_steps

GRAPHS = LabelledGraphs(depth=(2, 4), distractors=1, flipped_fraction=0.0)
PROGRAMS = LabelledPrograms(steps=(2, 3), examples=0, flipped_fraction=0.0)


def rows(task, count=200):
    return [task[index] for index in range(count)]


def test_labels_of_graphs_are_the_verifier_s_and_every_error_occurs():
    verdicts = []
    for prompt in rows(GRAPHS):
        words = judge_steps(prompt.info["steps"], prompt.info["graph"], 10)
        assert [word == "right" for word in words] == prompt.info["step_labels"]
        verdicts += words
    assert {"right", "wrong_value", "wrong_operands", "repeated", "too_early"} == set(verdicts)
    assert 0.6 < verdicts.count("right") / len(verdicts) < 0.85


def test_without_errors_all_steps_are_right():
    for prompt in rows(replace(GRAPHS, error_fraction=0.0), 50):
        assert prompt.info["step_labels"] == [True] * len(prompt.info["steps"])


def test_a_program_can_be_completed_after_its_right_lines_alone():
    """The lines labelled right, followed by the rest of the right program, give the right outputs; the broken program
    does not."""
    broken = 0
    for index, prompt in enumerate(rows(PROGRAMS, 100)):
        problem, lines = PROGRAMS.problem(index), prompt.info["steps"]
        inputs = [json.loads(value) for value in problem.inputs]
        expected = run_trusted(problem.function.program(), inputs)
        alive = sum(prompt.info["step_labels"])
        assert prompt.info["step_labels"] == [True] * alive + [False] * (len(lines) - alive)
        rest = problem.function.program().splitlines()[alive:]
        assert run_trusted("\n".join([*lines[:alive], *rest]), inputs) == expected
        if "\n".join(lines) != problem.function.program():
            broken += 1
            assert list(map(repr, run_trusted("\n".join(lines), inputs))) != list(map(repr, expected))
    assert broken / 100 == pytest.approx(0.75, abs=0.15)


def test_shared_lines_by_hand():
    assert count_shared(["a", "b", "c"], ["a", "x", "c"]) == 1
    assert count_shared(["a"], ["a", "b"]) == 1 and count_shared([], ["a"]) == 0


@pytest.mark.parametrize("task", [GRAPHS, PROGRAMS])
def test_a_share_of_the_training_labels_is_wrong_and_no_held_out_one(task):
    noisy = replace(task, flipped_fraction=0.2)
    pairs = [
        (label, right)
        for one, other in zip(rows(noisy), rows(task))
        for label, right in zip(one.info["step_labels"], other.info["step_labels"], strict=True)
    ]
    # 600 labels or more: a standard deviation of at most .016
    assert sum(label != right for label, right in pairs) / len(pairs) == pytest.approx(0.2, abs=0.06)
    for one, other in zip(rows(noisy.on("held_out"), 50), rows(task.on("held_out"), 50)):
        assert one.info["step_labels"] == other.info["step_labels"]


def test_problems_and_splits_are_those_of_the_task():
    plain = Graphs(depth=(2, 4), distractors=1)
    assert [p.messages for p in rows(GRAPHS, 20)] == [p.messages for p in rows(plain, 20)]
    code = Code(steps=(2, 3), examples=0)
    held_out = PROGRAMS.on("held_out")
    assert [p.messages for p in rows(held_out, 10)] == [p.messages for p in rows(code.on("held_out"), 10)]


def test_refusals():
    with pytest.raises(ValueError, match="flipped_fraction"):
        LabelledGraphs(flipped_fraction=0.5)
    for kind in (LabelledGraphs, LabelledPrograms):
        with pytest.raises(ValueError, match="error_fraction"):
            kind(error_fraction=1.5)
