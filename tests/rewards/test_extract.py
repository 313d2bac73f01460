"""Every extractor on good, bad and adversarial completions; the expected answers are written by hand."""

import pytest

from mmrl.rewards.extract import EXTRACTORS, build_extractor
from tests.times import fits

CASES = {
    "last_number": [
        ("The sum of 27 and 8 is 35.", "35"),
        ("35", "35"),
        ("I get 12, no, 1,250.", "1250"),
        ("x = -5", "-5"),
        ("it is \u22125", "-5"),  # minus sign
        ("27-8", "8"),  # a difference, not -8
        ("(27)-8", "8"),
        ("about 3.50 dollars", "3.50"),
        ("35.0", "35"),
        ("-0", "0"),
        ("007", "7"),
        (".5", ".5"),
        ("1/2 of it", "1/2"),
        ("3e-7 m", "3e-7"),
        ("10cm", "10"),
        ("\uff13\uff15", "35"),  # full-width digits
        ("\u0663\u0665", None),  # Arabic-Indic digits
        ("l0 and O", None),  # the letter l before a zero
        ("version 1.2.3", None),
        ("on 3/4/2024", None),
        ("1,2,3", None),
        ("12,50", None),
        ("<think>35</think>", None),
        ("<think>12</think>It is 35", "35"),
        ("12</think>It is 35", "35"),  # the template opened the thought
        ("It is 35 <think>or 12", None),  # a thought without end
        ("10\u00b2", None),  # 100, not 102
        ("2^10", None),
        ("10^-2 or 10^{-2} or 10^{2}", None),
        ("an area of 12 m\u00b2", "12"),
        ("2^10 = 1024", "1024"),
        ("<think>" + "7 " * 100_000, None),  # the thought began before the part that is read
        ("no idea", None),
        ("", None),
        ("-", None),
        ("1" * 50_000, "1" * 50_000),
    ],
    "boxed": [
        (r"so \boxed{35}", "35"),
        (r"\boxed{1} or \boxed{2}", "2"),
        (r"\boxed{\frac{1}{\sqrt{2}}}.", r"\frac{1}{\sqrt{2}}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\fbox{7}", "7"),
        (r"\boxed {7}", "7"),
        (r"\boxed{1} then \boxed{2", "1"),  # the last one is cut off
        (r"\boxed{2", None),
        (r"\boxed{}", None),
        (r"\boxed{ }", None),
        ("boxed{7}", None),
        (r"<think>\boxed{7}</think> seven", None),
        ("", None),
        (r"\boxed{" * 20_000, None),
    ],
    "tags": [
        ("<answer>35</answer>", "35"),
        ("<answer>1</answer> no: <answer> 2\n</answer>", "2"),
        ("<answer><b>x</b></answer>", "<b>x</b>"),
        ("<think><answer>1</answer></think>", None),
        ("<answer>1", None),
        ("1</answer>", None),
        ("</answer><answer>", None),
        ("<answer></answer>", None),
        ("<Answer>1</Answer>", None),
        ("<\u0430nswer>1</\u0430nswer>", None),  # a Cyrillic a
        ("", None),
        ("<answer>" * 20_000, None),
    ],
    "marker": [
        ("3 + 4 = 7\n#### 7", "7"),
        ("#### 1\n#### 2", "2"),
        ("####\n7", "7"),
        ("#### **7.**", "7"),
        ("### 7", None),
        ("####", None),
        ("<think>#### 7</think>", None),
        ("", None),
    ],
    "choice": [
        ("The answer is (B).", "B"),
        ("Answer: C", "C"),
        ("**Answer: D**", "D"),
        ("answer is A, or rather the answer is B", "B"),
        (r"\boxed{C}", "C"),
        (r"\boxed{\text{(C)}}", "C"),
        (r"\boxed{\textbf{(C)}}", "C"),
        (r"\boxed{\mathrm{C}}", "C"),
        ("Between (A) and (C) I take (C)", "C"),
        ("Hmm.\nB.", "B"),
        ("(B) it is, the answer is A", "A"),
        (r"Option A is wrong, so \boxed{C}", "C"),
        (r"The answer is not A. \boxed{B}", "B"),
        ("Option A is wrong, (C) is right", "C"),
        ("(A) is wrong, I take option C", "C"),
        ("(A) is wrong.\nC.", "C"),
        ("I choose choice D", "D"),
        ("(AB)", None),
        ("A dog is an animal", None),
        ("answer Because", None),
        ("Answer: F", None),
        ("b", None),
        ("\u0412", None),  # a Cyrillic letter
        ("<think>answer is B</think>", None),
        ("", None),
    ],
    "json": [
        ('{"answer": "Lima"}', "Lima"),
        ('{"answer": 3.5, "why": {"answer": 1}}', "3.5"),  # not the one inside
        ('so ```json\n{"answer": [1, 2]}\n```', "[1, 2]"),
        ('{"answer": 1} {"answer": 2}', "2"),
        ('{"answer": 1} {"other": 2}', "1"),
        ('{"answer": true}', "true"),
        ('{"answer": "{"}', "{"),
        ('{"answer": ""}', None),
        ("{'answer': 1}", None),
        ('{"answer": 1', None),
        ("", None),
        ('{"a":' * 20_000, None),
    ],
    "code": [
        ("see\n```python\nx = 1\n```\nand\n```\ny\n```", "x = 1"),
        ("```\nx\n```", "x"),
        ("```python\nx = 1", None),
        ("`x`", None),
        ("<think>\n```\nx\n```\n</think>", None),
        ("", None),
        ("```\n" * 20_000 + "x", None),
    ],
    "text": [("  Lima \n", "Lima"), ("<think>Quito</think>Lima", "Lima"), ("<think>Lima", None), (" ", None)],
}


@pytest.mark.parametrize(
    ("name", "text", "answer"),
    [(name, text, answer) for name, cases in CASES.items() for text, answer in cases],
    ids=lambda value: repr(value)[:30],
)
def test_the_answer_is_found_or_there_is_none(name, text, answer):
    assert build_extractor(name)(text) == answer
    assert fits(lambda: build_extractor(name)(text), 2)


def test_parameters():
    assert build_extractor({"tags": {"tag": "final"}})("<answer>1</answer><final>2</final>") == "2"
    assert build_extractor({"marker": {"marker": "The answer is"}})("the ANSWER is: Lima.") == "Lima"
    assert build_extractor({"json": {"field": "x"}})('{"answer": 1, "x": 2}') == "2"
    assert build_extractor({"choice": {"letters": "FG"}})("Answer: F") == "F"
    assert build_extractor({"code": {"language": "python"}})("```sh\nls\n```\n```Python\nx\n```") == "x"


@pytest.mark.parametrize("name", EXTRACTORS)
def test_what_is_written_is_found(name):
    answer = "B" if name == "choice" else "42"
    extract = build_extractor(name)
    assert extract(extract.write(answer)) == answer


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("boxxed", r"task\.extract='boxxed' is no extractor; choose one of text, last_number, boxed"),
        ({"tags": {"name": "a"}}, r"'name' is no parameter of 'tags', which has tag"),
        ({"boxed": {"tag": "a"}}, r"'tag' is no parameter of 'boxed', which has none"),
        ({"tags": {"tag": ""}}, r"task\.extract\.tags\.tag must be a text that is not blank, got ''"),
        ({"tags": {}, "boxed": {}}, r"write one name"),
    ],
)
def test_other_specifications_are_refused(spec, message):
    with pytest.raises(ValueError, match=message):
        build_extractor(spec)
