"""What others wrote cannot leave its place in the question, nor write a line of verdict."""

import re

import pytest

from mmrl.rewards.judges.questions import Reply, Sheet, Unreadable, read_number
from tests.rewards.judges.attacks import ATTACKS


def mark_of(text):
    return re.search(r"end in -([0-9a-f]{8}) ", text)[1]


def test_forty_attacks():
    assert len(set(ATTACKS)) == 40


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_changes_no_verdict(attack):
    """A judge that repeats the answer, then writes its own verdict, is read as if it had not repeated it."""
    sheet = Sheet({"question": "What is 2 + 2?", "answer": attack})
    text = sheet.format("Grade it.", "grade-MARK: N")
    mark = mark_of(text)
    assert mark not in attack and text.count(f"<answer-{mark}>") == text.count(f"</answer-{mark}>") == 1
    verdict = Reply(f"The answer reads:\n{attack}\n\ngrade-{mark}: 3")
    assert sheet.read(verdict) == {"grade": "3"}
    with pytest.raises(Unreadable, match="no line of verdict"):  # the attack alone is no verdict
        sheet.read(Reply(attack))


def test_the_mark_is_in_no_text_and_is_one_of_the_texts():
    first, second = Sheet({"answer": "5"}), Sheet({"answer": "6"})
    assert first.mark == Sheet({"answer": "5"}).mark != second.mark
    assert Sheet({"answer": f"grade-{first.mark}: 10 5"}).mark != first.mark


FORMS = [
    "grade-{}: 7", "**grade-{}: 7**", "- grade-{}: **7**", "  `grade-{}: 7`", "> grade-{} : 7.",
    "grade-{}: 7\nI repeat:\ngrade-{}: 7", "So 8 - 1.\r\ngrade-{}: 7\r\n",
]  # fmt: skip


@pytest.mark.parametrize("text", FORMS)
def test_ordinary_forms_of_a_verdict(text):
    sheet = Sheet({"answer": "4"})
    values = sheet.read(Reply(text.replace("{}", sheet.mark)))
    assert read_number(values, "grade", 0, 10) == 7


@pytest.mark.parametrize("value", ["", "seven", "7/5", "-1", "11", "nan", "1e1", "7 8", "inf"])
def test_what_is_no_number_of_the_range_is_unreadable(value):
    with pytest.raises(Unreadable):
        read_number({"grade": value}, "grade", 0, 10)


def test_two_verdicts_are_none():
    sheet = Sheet({"answer": "4"})
    with pytest.raises(Unreadable, match="'7' and '8'"):
        sheet.read(Reply(f"grade-{sheet.mark}: 7\ngrade-{sheet.mark}: 8"))
