"""One grammar of numbers: a table of forms, its readers, and texts on which a grammar could hang."""

from fractions import Fraction

import pytest

from mmrl.rewards.answers.numbers import find_last_number, parse_number
from mmrl.rewards.extract import EXTRACTORS, build_extractor
from tasks.dataset.verify import verify
from tests.rewards.answers.number_forms import FORMS
from tests.times import fits

WRAPPED = {
    **{name: kind().write for name, kind in EXTRACTORS.items()},
    "answer": "The answer is <answer>{}</answer>".format,
}
"""Every extractor, and how a number is written for it: in its own form, if nothing else is said here."""
LETTERS = {"choice"}
"""Extractors that read a letter alone."""


def test_the_table_has_300_forms():
    assert len({form for form, _ in FORMS}) == len(FORMS) >= 300


def test_every_form_has_its_value():
    results = {form: (find_last_number(form), value) for form, value in FORMS}
    assert {form: pair for form, pair in results.items() if pair[0] != pair[1]} == {}


@pytest.mark.parametrize("name", WRAPPED)
def test_a_form_is_never_read_as_another_value_by_any_extractor(name):
    """Whatever an extractor hands on, equality with a number is equality with the form's own value."""
    extract = build_extractor(name)
    wrong = []
    for form, value in FORMS:
        answer = extract(WRAPPED[name](form))
        parsed = None if answer is None else parse_number(answer)
        if parsed is not None and (value is None or parsed != Fraction(value)):
            wrong.append((form, answer))
        for other in ("7", "2", "3", "42", "234"):
            if verify(answer or "", other)["exact"] and (value is None or Fraction(value) != int(other)):
                wrong.append((form, other))
    assert wrong == []


@pytest.mark.parametrize("name", sorted(set(EXTRACTORS) - LETTERS))
def test_a_form_that_is_a_number_is_one_behind_every_extractor(name):
    extract = build_extractor(name)
    values = {form: parse_number(form) for form, _ in FORMS}
    numbers = {form: value for form, value in values.items() if value is not None}
    read = {form: parse_number(extract(WRAPPED[name](form)) or "") for form in numbers}
    assert {form: value for form, value in read.items() if value != numbers[form]} == {} and len(numbers) > 120


@pytest.mark.parametrize("name", sorted(LETTERS))
def test_a_form_of_a_number_is_no_letter(name):
    extract = build_extractor(name)
    assert {form: letter for form, _ in FORMS if (letter := extract(WRAPPED[name](form))) is not None} == {}


def test_whole_texts_are_numbers_and_sentences_are_not():
    good = {
        "1{,}234": 1234,
        "½": Fraction(1, 2),
        r"$\frac{1}{3}$": Fraction(1, 3),
        "\u20127": -7,
        "50%": Fraction(1, 2),
    }
    assert {text: parse_number(text) for text in good} == good
    for text in ("42 or 43", "not 42", "42 cm", "x=42", "42 43", "1e99999", "9" * 300, "1/0", "", "42\n43", "- 7 7"):
        assert parse_number(text) is None, text


@pytest.mark.parametrize(
    "part",
    ["1", "- ", "1 ", "1,", " 000", "(", "a", r"\frac", "a1", "x^", "1/", "½", "minus ", r"\frac{1}{", "_", " ", "{,}"],
)
def test_long_texts_are_read_in_linear_time(part):
    assert fits(lambda: find_last_number("1" + part * (60_000 // len(part))), 2)
