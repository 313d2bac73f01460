"""Boxes of LaTeX: what stands beside a box, boxes in boxes, and long texts."""

import pytest

from mmrl.rewards.answers.latex_boxes import find_boxes
from mmrl.rewards.extract import build_extractor
from tests.rewards.answers.latex_boxes import PARTS, WHOLE
from tests.times import fits


@pytest.mark.parametrize("name", ["boxed", "answer"])
def test_a_box_that_is_a_part_of_a_formula_is_no_answer(name):
    extract = build_extractor(name)
    results = {text: extract(text) for text in PARTS}
    assert {text: answer for text, answer in results.items() if answer is not None} == {}


@pytest.mark.parametrize("name", ["boxed", "answer"])
def test_what_stands_beside_an_ordinary_box_is_no_part_of_it(name):
    extract = build_extractor(name)
    results = {text: extract(text) for text in WHOLE}
    assert {text: answer for text, answer in results.items() if answer != WHOLE[text]} == {}


def test_the_last_number_of_a_box_has_its_sign_and_unit():
    texts = {
        r"-\boxed{7}": "-7",
        r"- \boxed{7}": "-7",
        r"-\boxed{\frac{1}{2}}": "-1/2",
        r"\boxed{50}\%": "0.5",
        r"\boxed{7} million": "7000000",
        r"\boxed{7}^2": None,
        r"\boxed{7}": "7",
        r"3 - \boxed{7}": "7",
    }
    extract = build_extractor("last_number")
    assert {text: extract(text) for text in texts} == texts


def test_one_box_within_another_is_a_part_of_it():
    assert [box.content for box in find_boxes(r"\boxed{\boxed{1}} and \boxed{2\boxed{3}} and \boxed{4}")] == [
        *("1", None, "4")
    ]
    assert [box.closed for box in find_boxes(r"\boxed{1} \boxed{2, \boxed{3}")] == [True, False, True]


@pytest.mark.parametrize("part", [r"\boxed{", r"\boxed{1}", "{", "}", r"\boxed{ ", r"\boxed", "\\", r"(\boxed{1})^2"])
def test_long_texts_are_read_in_linear_time(part):
    assert fits(lambda: find_boxes(part * (100_000 // len(part))), 1)
