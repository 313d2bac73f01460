"""Answers with the separators and capitals of a task's own answers, by hand."""

import pytest

from mmrl.rewards.answers.spelling import write_like
from tests.times import fits


@pytest.mark.parametrize(
    ("answer", "example", "written"),
    [
        ("[1, 4, 2]", "3 1 2", "1 4 2"),
        ("1,4 , 2", "3 1 2", "1 4 2"),
        ("1 4 2", "3,1", "1,4,2"),
        ("3 \u2013 5", "1-2", "3-5"),
        ("3 to 5", "1-2", "3-5"),
        ("1,250", "7", "1250"),
        ("7.0", "3", "7"),
        ("\u22127", "3", "-7"),
        ("$3.5", "0.99", "3.50"),
        ("3.50 dollars", "0.99", "3.50"),
        ("Light Blue", "red", "light blue"),
        ("No, yes, NO", "yes no", "no yes no"),
        ("(d)", "A", "D"),
        ("u, l", "RD", "UL"),
        ("so\n[1, 2]", "x\n3 4", "so\n1 2"),
        # of another kind, or more than one answer: as they are
        ("7.5", "3", "7.5"),
        ("50%", "3", "50%"),
        ("1 2 or 3", "3 1 2", "1 2 or 3"),
        ("1.5 2", "3 1", "1.5 2"),
        ("1 2; 3 4", "5 6", "1 2; 3 4"),
        ("5", "1-2", "5"),
        ("not blue!", "red", "not blue!"),
        ("blue2", "red", "blue2"),
        ("3.555", "0.99", "3.555"),
        ("-3.50", "0.99", "-3.50"),
        ("up left", "RD", "up left"),
        ("[1, 2", "3 4", "[1, 2"),
        ("SELECT 1", "SELECT a FROM b", "SELECT 1"),
        ("", "3", ""),
    ],
)
def test_the_form_is_that_of_the_example_and_the_values_stay(answer, example, written):
    assert write_like(answer, [example]) == written


def test_the_first_example_of_the_answers_kind_counts():
    assert write_like("(7)", ["circle", "3"]) == "7" and write_like("Star", ["circle", "3"]) == "star"
    assert write_like("7", []) == "7"


@pytest.mark.parametrize("part", ["1 ", "1,", "a ", "(", "- ", "[1, "])
def test_long_answers_are_left_as_they_are_at_once(part):
    def write() -> None:
        for example in ("3 1 2", "3", "red", "RD", "0.99", "1-2"):
            text = part * 30_000
            assert write_like(text, [example]) == text
            write_like(part * 200, [example])

    assert fits(write, 1)
