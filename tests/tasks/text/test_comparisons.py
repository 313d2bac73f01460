"""Comparisons: labels by the grades, both orders of every pair, splits that no order crosses."""

import pytest

from mmrl.core.errors import ConfigError
from tasks.judgements.comparisons import Comparisons
from tasks.judgements.principles import grade
from tests.tasks.replies import reply


def test_the_label_names_the_better_sentence():
    task = Comparisons(count=60)
    for index in range(60):
        prompt = task[index]
        principle, first, second = prompt.messages[0]["content"].removesuffix("?").split()
        grades = [grade(principle, "" if each == "x" else each) for each in (first, second)]
        assert prompt.answer == ("1" if grades[0] > grades[1] else "2") and grades[0] != grades[1]
        assert task.score(reply(prompt, prompt.answer)) == {"exact": 1.0, "format": 1.0}
        assert task.score(reply(prompt, "21"[int(prompt.answer) - 1])) == {"exact": 0.0, "format": 1.0}
        assert task.score(reply(prompt, "3")) == {"exact": 0.0, "format": 0.0}


def test_every_pair_comes_in_both_orders_and_in_one_split():
    train, held_out = Comparisons(count=400, principles=["+b"]), Comparisons(principles=["+b"], split="held_out")
    for index in range(0, 40, 2):
        one, other = train.problem(index), train.problem(index + 1)
        assert one.answers == other.answers[::-1] and {train[index].answer, train[index + 1].answer} == {"1", "2"}
    pairs = [{frozenset(task.problem(i).answers) for i in range(400)} for task in (train, held_out)]
    assert not pairs[0] & pairs[1]


@pytest.mark.parametrize("wrong", [{"candidates": 3}, {"fewest": 1}, {"ranked": True}, {"binary": True}])
def test_what_has_no_label_is_refused(wrong):
    with pytest.raises(ConfigError, match="two answers are compared by a label"):
        Comparisons(**wrong)
