"""Exercises on worked solutions: golden shares of places, right orders, and hidden values."""

import pytest

from mmrl.core.types import Prompt
from tasks.graphs import GraphSteps
from tasks.graphs.data import Graph, Node
from tasks.graphs.exercises import Exercise, is_order
from tests.tasks.replies import reply

CHAIN = Graph((Node("a", (3,)), Node("b", ("a", 2), "+"), Node("c", ("b", 1), "*"), Node("d", ("c", 4), "-")), "d")
STEPS = ["b=a+2=5", "d=c-4=1", "a=3", "c=b*1=5"]  # as they are shown; 2 0 3 1 is their order


@pytest.mark.parametrize(
    ("text", "exact", "places"),
    [
        ("2 0 3 1", 1, 1),
        ("2 3 0 1", 0, 0.5),
        ("1 3 0 2", 0, 0),  # backwards
        ("2 0 3", 0, 0),
        ("2 0 3 1 1", 0, 0),
        ("2 0 3 3", 0, 0.75),
        ("2, 0, 3, 1", 0, 0),
        ("02 0 3 1", 0, 0),
        ("", 0, 0),
        ("1 " * 20_000, 0, 0),
    ],
)
def test_order_by_hand(text, exact, places):
    prompt = Prompt("graph_steps/train/0", answer=[2, 0, 3, 1], info={"graph": CHAIN, "steps": STEPS})
    scores = GraphSteps(depth=(4, 4)).score(reply(prompt, text))
    assert (scores["exact"], scores["places"]) == (exact, places)


@pytest.mark.parametrize(("text", "places"), [("1 2 3", 1), ("1 0 3", pytest.approx(2 / 3)), ("1 2", 0), ("x", 0)])
def test_hidden_values_by_hand(text, places):
    prompt = Prompt("graph_steps/train/0", answer=[1, 2, 3], info={"graph": CHAIN, "steps": STEPS})
    scores = GraphSteps(exercise="fill", depth=(3, 3), gaps=3).score(reply(prompt, text))
    assert scores["places"] == places and scores["exact"] == (places == 1)


def test_every_order_that_can_be_computed_is_right():
    graph = Graph((Node("a", (3,)), Node("b", (4,)), Node("c", ("a", "b"), "+")), "c")
    steps = ["a=3", "b=4", "c=a+b=7"]
    assert is_order([0, 1, 2], steps, graph, 10) and is_order([1, 0, 2], steps, graph, 10)
    assert not is_order([0, 2, 1], steps, graph, 10) and not is_order([0, 0, 2], steps, graph, 10)


def test_prompts_by_hand():
    exercise = Exercise(CHAIN, (1, 0, 2, 3), (1, 3, 0, 2), (1, 3))
    order = GraphSteps(depth=(4, 4)).write_prompt(exercise, "k")
    assert order.messages[0]["content"].splitlines()[1:] == [f"{n}: {step}" for n, step in enumerate(STEPS)]
    assert order.answer == [2, 0, 3, 1]
    fill = GraphSteps(exercise="fill", depth=(4, 4)).write_prompt(exercise, "k")
    assert fill.messages[0]["content"] == "b=a+2;a=3;c=b*1;d=c-4;d?\na=3\nb=a+2=_\nc=b*1=5\nd=c-4=_"
    assert fill.answer == [5, 1]


@pytest.mark.parametrize("exercise", ["order", "fill"])
def test_demonstrations_are_right(exercise):
    task = GraphSteps(exercise=exercise, extract="boxed", wording="garden")
    for index in range(50):
        assert set(task.score(reply(task[index], task.demonstrate(index))).values()) == {1.0}


@pytest.mark.parametrize("options", [{"exercise": "guess"}, {"gaps": 4}, {"depth": (1, 3), "gaps": 1}])
def test_arguments_without_problems_are_refused(options):
    with pytest.raises(ValueError, match="graph_steps"):
        GraphSteps(**options)
