"""Dependency graphs: golden process scores, graphs whose quantities are all needed, and adversarial solutions."""

import numpy as np
import pytest

from tasks.graphs import Graphs
from tasks.graphs.data import Graph, Node, draw_graph
from tasks.graphs.rewards import score_length, score_steps
from tasks.graphs.task import Problem, write_solution
from tasks.graphs.verify import judge_steps, measure_process
from tests.tasks.replies import reply

GRAPH = Graph(
    (
        Node("a", (3,)),
        Node("b", ("a", 2), "+"),
        Node("c", ("b", "a"), "*"),
        Node("d", (9, "c"), "-"),
        Node("x", ("c", "c"), "+"),
        Node("e", ("d", "b"), "+"),
    ),
    "e",
)
RIGHT = ["a=3", "b=a+2=5", "c=b*a=5", "d=9-c=4", "e=d+b=9"]


def test_values_and_needed_quantities_by_hand():
    assert GRAPH.values(10) == {"a": 3, "b": 5, "c": 5, "d": 4, "x": 0, "e": 9}
    assert [node.name for node in GRAPH.ancestors()] == list("abcde")


@pytest.mark.parametrize(
    ("lines", "correct", "process", "penalty"),
    [
        (RIGHT, True, 1.0, 0),
        ([*RIGHT[:2], "c=b*a=6", "d=9-b=4", RIGHT[4]], True, 0.6, 2),  # a wrong value, wrong operands
        (["e=d+b=9"], True, 0.0, 5),  # four missing, and e reads what was not computed
        ([*RIGHT[:4], "x=c+c=0", RIGHT[4]], True, 0.8, 1),  # not needed
        ([*RIGHT, *["x=c+c=0"] * 50], True, 0.0, 5),  # further lines count as many as are needed
        ([*RIGHT[:3], "d=9-c=1", "d=9-c=2", "d=9-c=4", RIGHT[4]], True, 0.4, 3),  # the first value of a quantity counts
        ([RIGHT[1], RIGHT[0], *RIGHT[2:]], True, 0.8, 1),  # b before the a that it reads
        ([*RIGHT[:4], "e=d+b=1"], False, 0.6, 2),
        ([], False, 0.0, 6),
    ],
)
def test_process_by_hand(lines, correct, process, penalty):
    got = measure_process(lines, GRAPH, 10, correct)
    assert got == (pytest.approx(process), penalty)


def test_each_step_has_a_verdict():
    lines = ["a=3", "b=a+2=6", "b=a+2=5", "c=b*b=5", "x=c+c=0", "e=d+b=9", "so e is 9"]
    assert judge_steps(lines, GRAPH, 10) == [
        *("right", "wrong_value", "repeated", "wrong_operands", "not_needed", "too_early", "no_step")
    ]


@pytest.fixture
def prompt():
    return Graphs().write_prompt(Problem(GRAPH, (5, 2, 0, 1, 4, 3)), "graphs/train/0")


def test_the_question_has_all_definitions(prompt):
    assert prompt.messages[0]["content"] == "e=d+b;c=b*a;a=3;b=a+2;x=c+c;d=9-c;e?"
    words = Graphs(wording="zoo").write_prompt(Problem(GRAPH, (0, 3)), "k").messages[0]["content"]
    assert "The number of antelopes is 3." in words
    assert "The number of deer is the difference of 9 and the number of camels." in words


@pytest.mark.parametrize(
    ("text", "exact", "strict", "process"),
    [
        ("\n".join(RIGHT), 1, 1, 1.0),
        ("\n".join([*RIGHT, "9"]), 1, 1, 1.0),
        ("9", 1, 0, 0.0),  # the answer without steps
        ("\n".join([*RIGHT[:2], "c=b*a=6", *RIGHT[3:]]), 1, 0, 0.8),
        ("\n".join([*RIGHT[:4], "e=d+b=8"]), 0, 0, 0.0),
        ("e=d+b=9\ne=d+b=8", 0, 0, 0.0),
        ("1 2 3 4 5 6 7 8 9", 0, 0, 0.0),
        ("x=c+c=9", 0, 0, 0.0),  # the right number of another quantity
        ("<think>" + "\n".join(RIGHT) + "</think>", 0, 0, 0.0),
        ("", 0, 0, 0.0),
        ("09", 0, 0, 0.0),
        ("９", 0, 0, 0.0),
        ("e=" + "9" * 20000, 0, 0, 0.0),
    ],
)
def test_solutions(prompt, text, exact, strict, process):
    scores = Graphs().score(reply(prompt, text))
    assert (scores["exact"], scores["strict"]) == (exact, strict)
    assert scores["process"] == pytest.approx(process)


def test_an_extracted_answer_is_verified_beside_the_steps(prompt):
    task = Graphs(extract="boxed")
    text = "First a.\n" + "\n".join(RIGHT) + "\nSo \\boxed{9}."
    assert task.score(reply(prompt, text)) == {"exact": 1, "format": 1, "process": 1, "strict": 1, "steps": 1}


def test_every_quantity_but_the_distractors_is_needed():
    rng = np.random.default_rng(0)
    for _ in range(500):
        depth = int(rng.integers(1, 20))
        graph = draw_graph(rng, depth, 3, "+-*", 10)
        assert len(graph.ancestors()) == depth and len(graph.nodes) == depth + 3


def test_demonstrations_are_strictly_right():
    for task in (Graphs(depth=(1, 9)), Graphs(depth=(3, 3), extract="tags", wording="shop", modulus=23)):
        for index in range(50):
            scores = task.score(reply(task[index], task.demonstrate(index)))
            assert set(scores.values()) == {1.0}
            assert task.depth[0] <= task[index].info["depth"] <= task.depth[1]


def test_splits_share_no_graph():
    task = Graphs(depth=(1, 2), distractors=0, count=1000)
    keys = [{task.split_key(task.on(s).problem(i)) for i in range(500)} for s in ("train", "held_out")]
    assert not keys[0] & keys[1]


@pytest.mark.parametrize(
    "options", [{"depth": (3, 2)}, {"depth": (20, 26)}, {"operations": "/"}, {"modulus": 1}, {"wording": "sea"}]
)
def test_arguments_without_problems_are_refused(options):
    with pytest.raises(ValueError, match="graphs"):
        Graphs(**options)


def test_step_scores_are_right_or_not():
    prompt = Graphs().write_prompt(Problem(GRAPH, (5, 2, 0, 1, 4, 3)), "graphs/train/0")
    graph, lines = prompt.info["graph"], write_solution(GRAPH, 10)
    assert score_steps([f"{line}\n" for line in lines], graph, prompt.info["modulus"]) == [1.0] * len(lines)
    assert score_steps([*lines, lines[0], str(prompt.answer)], graph, 10) == [1.0] * len(lines) + [0.0, 1.0]
    assert score_steps(["", "q=7"], graph, 10) == [0.0, 0.0]


def test_a_scorer_of_length_pays_for_what_is_wrong_too():
    assert score_length(["a=3\n", "b=a+2=9\n", "x" * 20]) == pytest.approx([3 / 7, 1, 1])


@pytest.mark.parametrize("separator", ["\n\n", "\r\n", "\n \n", "\n\n\n"])
def test_blank_lines_between_right_steps_cost_nothing(separator):
    task = Graphs()
    for index in range(20):
        scores = task.score(reply(task[index], task.demonstrate(index).replace("\n", separator)))
        assert set(scores.values()) == {1.0}, scores
