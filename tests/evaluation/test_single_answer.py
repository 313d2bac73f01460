"""A policy that gives one answer to all problems is named as such."""

import pytest

from mmrl.core.types import Episode, Prompt
from mmrl.evaluation.report.single_answer import describe_single_answer


def episodes(*answers, ended="done", key=None):
    return [
        Episode(Prompt(key or f"p{i}"), i, 0, ended=ended, info={} if answer is None else {"answer": answer})
        for i, answer in enumerate(answers)
    ]


def test_one_answer_to_all_problems_is_said():
    said = describe_single_answer(episodes("no", "no", "no"))
    assert said == "all 3 problems got the same answer, 'no': compare with its share of them"
    assert describe_single_answer(episodes("no", "no") + episodes("yes", ended="error")) is not None


@pytest.mark.parametrize(
    "measured",
    [
        episodes("no", "yes", "no"),
        episodes("no", "no", key="p"),  # samples of one problem
        episodes("no"),
        episodes(None, None),  # a robot answers nothing
        episodes("no", "no", ended="error"),
        [],
    ],
)
def test_everything_else_is_not(measured):
    assert describe_single_answer(measured) is None
