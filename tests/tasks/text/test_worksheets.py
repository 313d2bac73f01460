"""Worksheets: results, marks, levels and critiques by hand, replies that are read, feedback and revisions."""

from dataclasses import replace

import numpy as np
import pytest

from mmrl.core.errors import ConfigError
from mmrl.core.types import Prompt
from mmrl.rewards.critiques import Unit
from mmrl.rewards.judges.questions import Reply, Unreadable
from tasks.worksheets import Worksheets
from tasks.worksheets.critiques import WorksheetCritique, WorksheetFeedback
from tasks.worksheets.language import (
    apply_remarks,
    mark,
    name_flaws,
    rate,
    read_answer,
    read_remarks,
    solve,
    write_critique,
)
from tasks.worksheets.task import QUESTIONS, Worksheet
from tests.tasks.replies import reply

SHEET = Worksheet(("34", "75", "26"), "728", "7_3", (None, "1", None))
"""3 + 4 = 7, 7 + 5 = 12, whose last digit is 2, 2 + 6 = 8. The answer leaves the second line open, and its third one is
wrong; the critique says that the second one should be 1, and misses the third one."""
TEXTS = {
    "solve": ("34_.75_.26_.=", "347.752.268."),
    "rate": ("347.75_.263.?", "347y752m268n>112"),
    "redo": ("347y75_m263n!", "347.752.268."),
    "criticise": ("347.75_.263.:", "347.752x268x"),
    "revise": ("347.75_.263./34..751x26..;", "347.751.263."),
}


def prompt_of(question: str) -> Prompt:
    task = Worksheets(questions=(question,), lines=3)
    return task.write_prompt(SHEET, "worksheets/train/0")


def test_results_marks_levels_and_remarks_by_hand():
    assert solve(SHEET.sums) == "728" and solve(("34", "25"), modulus=6) == "11"  # 7 - 6 and 7 - 6
    assert mark("728", "7_3") == "ymn"
    # one wrong line of two levels costs one, as does one open line; no level is below 0
    assert [rate(marks) for marks in ("yyy", "ymn", "nnm", "nnn", "mmy")] == [
        (2, 2, 2),
        (1, 1, 2),
        (0, 1, 2),
        (0, 2, 2),
        (2, 0, 2),
    ]
    # a line whose flaw is not named has the result of the answer
    critiques = ["347.752x268x", "347.75_.268x", "347.752x263."]
    flaws = [name_flaws("728", "7_3", named) for named in ("wm", "w", "m")]
    assert [write_critique(SHEET.sums, "7_3", remarks) for remarks in flaws] == critiques
    assert flaws == [[None, "2", "8"], [None, None, "8"], [None, "2", None]]
    assert [read_remarks(each, SHEET.sums) for each in critiques] == flaws
    assert apply_remarks("7_3", [None, "2", "8"]) == "728" and apply_remarks("7_3", ["1", None, None]) == "1_3"


@pytest.mark.parametrize("question", TEXTS)
def test_prompts_and_replies_by_hand(question):
    task, prompt = Worksheets(questions=(question,), lines=3), prompt_of(question)
    assert (prompt.messages[0]["content"], prompt.answer) == TEXTS[question]
    assert task.score(reply(prompt, prompt.answer)) == {"exact": 1.0, "format": 1.0, "lines": 1.0}
    for unreadable in ("", "347.", prompt.answer[:-1], prompt.answer + "2", prompt.answer.replace("75", "57")):
        assert set(task.score(reply(prompt, unreadable)).values()) == {0.0}


def test_a_wrong_line_counts_for_the_others():
    task = Worksheets(lines=3)
    assert task.score(reply(prompt_of("solve"), "347.751.26_.")) == {"exact": 0.0, "format": 1.0, "lines": 1 / 3}
    # the marks are right, and the levels and two results are not
    task = replace(task, questions=("rate",))
    assert task.score(reply(prompt_of("rate"), "347y751m26_n>222")) == {"exact": 0.0, "format": 1.0, "lines": 1.0}


def test_questions_come_in_turn_and_flaws_have_their_shares():
    task = Worksheets(questions=tuple(QUESTIONS), lines=5, modulus=4, wrong=0.3, missing=0.2, count=2000)
    assert [task[i].info["question"] for i in range(5)] == list(QUESTIONS)
    sheets = [task.problem(i) for i in range(600)]
    assert {digit for sheet in sheets for pair in sheet.sums for digit in pair} == set("0123")
    marks = "".join(mark(sheet.right, sheet.results) for sheet in sheets)
    # 3000 lines: standard deviations 0.0084 and 0.0073, and four of them
    assert abs(marks.count("n") / 3000 - 0.3) < 0.034 and abs(marks.count("m") / 3000 - 0.2) < 0.030


def test_a_critique_of_revise_misses_and_misleads_by_its_shares():
    honest = Worksheets(missed=0.0, misled=0.0)
    for sheet in map(honest.problem, range(50)):
        assert apply_remarks(sheet.results, sheet.remarks) == sheet.right
        assert all((remark is None) == (a == b) for remark, a, b in zip(sheet.remarks, sheet.results, sheet.right))
    silent = Worksheets(missed=1.0, misled=0.0)
    assert all(set(sheet.remarks) == {None} for sheet in map(silent.problem, range(50)))
    assert all(None not in sheet.remarks for sheet in map(Worksheets(misled=1.0).problem, range(50)))


def test_flawed_demonstrations_are_those_of_people_who_err():
    """The answer with flaws, and a critique whose remarks on lines with other kinds of flaws are left out."""
    task = Worksheets(questions=("solve", "criticise"), flawed=True, named="m", misled=0.3)
    for i in range(0, 40, 2):
        sheet = task.problem(i)
        assert task.demonstrate(i) == "".join(f"{a}{b}." for a, b in zip(sheet.sums, sheet.results))
        sheet = task.problem(i + 1)
        marks, remarks = mark(sheet.right, sheet.results), read_remarks(task.demonstrate(i + 1), sheet.sums)
        assert remarks == [None if one == "n" else each for one, each in zip(marks, sheet.remarks)]
    assert task[0].answer == Worksheets(questions=("solve", "criticise"))[0].answer  # scored by what is right


def test_a_guess_is_readable_and_seldom_right():
    task = Worksheets(questions=tuple(QUESTIONS))
    rng = np.random.default_rng(0)
    scores = [task.score(reply(task[i], task.guess(task[i], rng))) for i in range(200)]
    assert all(each["format"] == 1 for each in scores) and sum(each["exact"] for each in scores) < 40


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"questions": ["sing"]}, "questions"),
        ({"questions": []}, "questions"),
        ({"lines": 9}, "lines"),
        ({"modulus": 2}, "modulus"),
        ({"wrong": 0.7, "missing": 0.4}, r"wrong \+ missing"),
        ({"misled": 1.5}, "misled"),
        ({"named": "x"}, "named"),
        ({"named": ""}, "named"),
    ],
)
def test_wrong_arguments_are_refused(wrong, message):
    with pytest.raises((ConfigError, ValueError), match=f"worksheets.*{message}"):
        Worksheets(**wrong)


def test_feedback_is_asked_for_and_read():
    answer = "347.75_.263."
    episode = reply(prompt_of("solve"), answer)
    question = WorksheetFeedback().ask(episode, answer)
    assert question.text == TEXTS["rate"][0]
    feedback = question.read(Reply(TEXTS["rate"][1]))
    assert feedback.levels == {"accuracy": 1, "completeness": 1, "readability": 2} and feedback.total == 4
    assert feedback.reason == "ymn"  # the policy that refines does not read the results
    assert WorksheetFeedback().write_refinement(episode, answer, feedback) == TEXTS["redo"][0]
    for unreadable in ("347y752m268n", "347y752m>112", "347y752m268n>11", "347y752m268n>113", "347y752m268q>112"):
        with pytest.raises(Unreadable):
            question.read(Reply(unreadable))


def test_an_answer_with_other_lines_is_shown_as_open_and_is_not_readable():
    episode = reply(prompt_of("solve"), "what?")
    question = WorksheetFeedback().ask(episode, "what?")
    assert question.text == "34_.75_.26_.?"
    feedback = question.read(Reply("347m752m268m>202"))
    assert feedback.levels == {"accuracy": 2, "completeness": 0, "readability": 0}
    assert WorksheetFeedback().write_refinement(episode, "what?", feedback) == "34_m75_m26_m!"


def test_units_of_critiques_are_read_judged_and_written():
    form, prompt = WorksheetCritique(), prompt_of("criticise")
    units = form.read("341x752x263.", prompt)
    assert units == [Unit("0:34", "w", "1"), Unit("1:75", "m", "2")]
    # the first line has no flaw, and the second one is open and should be 2
    assert [form.is_right(unit, prompt) for unit in units] == [False, True]
    assert not form.is_right(Unit("2:26", "w", "7"), prompt) and form.is_right(Unit("2:26", "w", "8"), prompt)
    assert form.write(units, prompt) == "341x752x263." and form.write([], prompt) == "347.75_.263."
    assert form.read("341x752x", prompt) is None


def test_revisions_are_asked_for_and_graded():
    form, prompt = WorksheetCritique(), prompt_of("criticise")
    assert form.write_revision(prompt, "347.751x263.") == TEXTS["revise"][0]
    assert form.write_revision(prompt, "347.751x268.") == TEXTS["revise"][0]  # without its sign nothing is a flaw
    assert form.write_revision(prompt, "nothing") == "347.75_.263./nothing;"
    # two lines of three are right; all; a text that is no answer
    assert [form.grade(text, prompt) for text in ("347.752.26_.", "347.752.268.", "nothing")] == [20 / 3, 10, 0]


def test_a_prompt_of_another_task_is_refused():
    with pytest.raises(ConfigError, match="task=worksheets"):
        WorksheetCritique().read("347.", Prompt("other/0"))


def test_an_answer_may_leave_lines_open():
    assert read_answer("34_.752.", ("34", "75")) == "_2" and read_answer("34..752.", ("34", "75")) is None
