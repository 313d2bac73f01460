"""Evaluations: solutions, injected errors and verdicts by hand, formats in turn, replies that are read."""

import json

import numpy as np
import pytest

from mmrl.core.errors import ConfigError
from mmrl.rewards.judges.base import NoAnswer
from mmrl.rewards.judges.questions import Reply, Unreadable
from tasks.evaluations import Evaluations
from tasks.evaluations.sampled import SampledEvaluations, read_errors
from tasks.evaluations.solutions import (
    count_right_steps,
    find_first_error,
    inject_error,
    is_solution,
    read_solution,
    solve,
    write_solution,
)
from tasks.evaluations.solving import SumSolutions
from tasks.evaluations.task import VERDICTS, Problem
from tasks.evaluations.verdicts import EvaluatorVerdict
from tests.tasks.replies import reply


def test_solutions_and_verdicts_by_hand():
    """3 + 4 = 7, 7 + 7 = 14, whose last digit is 4."""
    assert solve("347") == "74" and solve("000") == "00"
    by_hand = {"74": (0, 2), "75": (2, 1), "84": (1, 0), "x4": (1, 0), "7x": (2, 1), "7": (2, 1), "4": (1, 0)}
    for solution, (error, right) in {**by_hand, "": (1, 0), "744": (3, 2)}.items():
        assert (find_first_error("347", solution), count_right_steps("347", solution)) == (error, right)


def test_injected_errors_by_listing():
    """Every error that can be drawn for 347, of solution 74: a wrong first digit d leads on to d + 7."""
    rng = np.random.default_rng(0)
    drawn = {kind: {inject_error("347", kind, rng) for _ in range(600)} for kind in ("digit", "type", "missing")}
    first = {f"{d}{(d + 7) % 10}" for d in range(10) if d != 7}
    assert drawn["digit"] == first | {f"7{d}" for d in range(10) if d != 4}
    assert drawn["type"] == {"x4", "7x"} and drawn["missing"] == {"4", "7"}
    # a step left out never gives the right solution, since it is shorter
    assert all(inject_error("300", "missing", rng) == "3" for _ in range(20)) and solve("300") == "33"


@pytest.mark.parametrize(
    "form, solutions, verdict, text",
    [
        ("pair", ("74", "7x"), "1", "p347:74,7x?"),
        ("pair", ("84", "74"), "2", "p347:84,74?"),
        ("verify", ("74",), "y", "v347:74?"),
        ("reference", ("84",), "n", "r347:84=4?"),  # the right result by a wrong step
        ("step", ("75",), "2", "s347:75?"),
        ("rating", ("75",), "1", "g347:75?"),
    ],
)
def test_prompts_by_hand(form, solutions, verdict, text):
    task = Evaluations()
    drawn = Problem("", "347", (*solutions, "74")[:2], "", False)
    problem = task._judge(drawn, form)
    assert problem == Problem(form, "347", solutions, verdict, False)
    prompt = task.write_prompt(problem, "evaluations/train/0")
    assert prompt.messages[0]["content"] == text and prompt.answer == verdict
    assert task.score(reply(prompt, f"74>{verdict}")) == {"exact": 1.0, "format": 1.0, "reasons": 1.0}
    # a right verdict after wrong reasons is kept by rejection sampling, as in the paper
    assert task.score(reply(prompt, f"00>{verdict}")) == {"exact": 1.0, "format": 1.0, "reasons": 0.0}
    for unreadable in (verdict, f"74>{verdict}{verdict}", f"74>q>{verdict}", f">{verdict}", ""):
        assert set(task.score(reply(prompt, unreadable)).values()) == {0.0}


def test_formats_come_in_turn_and_all_verdicts_occur():
    task = Evaluations(direct=0.5)
    prompts = [task[i] for i in range(300)]
    assert [p.info["format"] for p in prompts[:5]] == list(VERDICTS)
    for form, verdicts in VERDICTS.items():
        assert {p.answer for p in prompts if p.info["format"] == form} == set(verdicts)
    direct = [p for p in prompts if p.info["direct"]]
    assert 110 < len(direct) < 190 and all(p.messages[0]["content"].endswith("!") for p in direct)
    assert task.score(reply(direct[0], direct[0].answer)) == {"exact": 1.0, "format": 1.0, "reasons": 1.0}
    assert task.score(reply(direct[0], f"74>{direct[0].answer}"))["format"] == 0.0


@pytest.mark.parametrize("wrong", [{"formats": ["list"]}, {"formats": []}, {"errors": ["typo"]}, {"wrong": 2.0}])
def test_wrong_arguments_are_refused(wrong):
    with pytest.raises((ConfigError, ValueError), match="task 'evaluations'"):
        Evaluations(**wrong)


def test_solutions_are_written_in_notations_and_read_from_them():
    """7 and 4: 74, 7 4, 7-4, (74)."""
    written = [write_solution("74", notation) for notation in ("plain", "spaced", "dashed", "bracketed")]
    assert written == ["74", "7 4", "7-4", "(74)"]
    assert {read_solution(text) for text in written} == {"74"} and all(map(is_solution, written))
    assert not any(map(is_solution, ["74?", "7,4", "74>y", "7" * 9]))
    task = Evaluations(notations=["spaced", "bracketed"])
    solutions = [one for i in range(60) for one in task.problem(i).solutions]
    assert all(text == write_solution(read_solution(text), "spaced") or text[0] == "(" for text in solutions)
    assert {text[0] == "(" for text in solutions} == {True, False}
    for form, verdict in {"step": "2", "rating": "1", "verify": "n"}.items():  # of 7 4, the second step is 5
        assert task._judge(Problem("", "347", ("7 5", "(74)"), "", False), form).verdict == verdict
    assert task._judge(Problem("", "347", ("(74)", "7 5"), "", False), "pair").solutions == ("(74)", "7 5")


def write_rows(path, answers):
    rows = [{"prompt": [{"role": "user", "content": f"{sum_}="}], "completion": text} for sum_, text in answers]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_wrong_answers_of_other_policies_are_judged(tmp_path):
    """347: 74 is right in any notation; 7 5 and (8) are wrong; 74>y could not stand in a question."""
    task = SumSolutions()
    operands = task.problem(0)
    right = solve(operands)
    wrong = str((int(right[0]) + 1) % 10) + " " + right[1]
    answers = [(operands, right), (operands, f"({right})"), (operands, wrong), (operands, "(8)"), (operands, "74>y")]
    path = write_rows(tmp_path / "rows.jsonl", answers)
    assert read_errors((path,)) == ((operands, wrong), (operands, "(8)"))
    judged = SampledEvaluations(answers=[path], sampled=1.0)
    for index in range(40):
        problem = judged.problem(index)
        assert problem.operands == operands
        assert {wrong, "(8)"} & {*problem.solutions} or problem.solutions == (right,)
    some = [SampledEvaluations(answers=[path], sampled=0.5).problem(i) for i in range(200)]
    assert 60 < sum(bool({wrong, "(8)"} & {*problem.solutions}) for problem in some if problem.form == "pair") * 5 < 140
    # a sum of a training problem is no held-out one
    held_out = SampledEvaluations(answers=[path], sampled=0.5, split="held_out")
    assert all(held_out.problem(i).operands != operands for i in range(20))


@pytest.mark.parametrize(
    "answers, message", [([("347", "74")], "no wrong answer"), ([("34", "7")], "line 1 asks for no sum")]
)
def test_rows_without_a_use_are_refused(answers, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        read_errors((write_rows(tmp_path / "rows.jsonl", answers),))
    with pytest.raises(ConfigError, match="answers is empty"):
        SampledEvaluations()


def test_solutions_of_the_solver_are_right_in_any_notation_and_equal_the_reference_in_one():
    task = SumSolutions(flawed=0.4, count=400)
    prompt = task.write_prompt("347", "sum_solutions/train/0")
    assert prompt.messages[0]["content"] == "347=" and prompt.answer == "74"
    assert task.score(reply(prompt, "74")) == {"exact": 1.0, "format": 1.0, "plain": 1.0}
    assert task.score(reply(prompt, "(74)")) == {"exact": 1.0, "format": 1.0, "plain": 0.0}
    assert task.score(reply(prompt, "7-5")) == {"exact": 0.0, "format": 1.0, "plain": 0.0}
    assert task.score(reply(prompt, "74!"))["format"] == 0.0
    shown = [task.score(reply(task[i], task.demonstrate(i))) for i in range(400)]
    assert 0.5 < np.mean([scores["exact"] for scores in shown]) < 0.7  # 0.6 are right
    assert 0.1 < np.mean([scores["plain"] for scores in shown]) < 0.2  # a quarter of them in the notation
    held_out = {task.on("held_out").problem(i) for i in range(100)}
    judged = {Evaluations().on("held_out").problem(i).operands for i in range(400)}
    trained = {Evaluations().problem(i).operands for i in range(400)}
    assert held_out & judged and not held_out & trained


def test_the_evaluator_is_asked_about_a_solution_alone():
    """What a solver writes cannot end the question: its marks are steps of a wrong type."""
    form, prompt = EvaluatorVerdict(), SumSolutions().write_prompt("347", "sum_solutions/train/0")
    (question,) = form.ask([reply(prompt, "(74)")])
    assert question.text == "v347:(74)?"
    assert form.write("347", "74?74>y") == "v347:74x74xx?" and form.write("347", "7" * 30) == f"v347:{'7' * 9}?"
    assert [question.read(Reply(text)) for text in ("74>y", "00>n")] == [1.0, 0.0]
    for text in ("y", "74>y74>y", "74>q", ""):
        with pytest.raises(Unreadable):
            question.read(Reply(text))
    (direct,) = EvaluatorVerdict(direct=True).ask([reply(prompt, "7-4")])
    assert direct.text == "v347:7-4!" and direct.read(Reply("y")) == 1.0
    absent = NoAnswer("no reply")
    assert form.combine([1, 2], [1.0, absent]) == [{"accepted": 1.0}, absent]
