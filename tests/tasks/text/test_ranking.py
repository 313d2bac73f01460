"""Rankings: the right order, partial scores, and arguments."""

import pytest

from mmrl.core.types import Prompt
from tasks.ranking import Ranking
from tasks.ranking.task import Problem
from tests.tasks.replies import reply

PROBLEM = Problem(("rope", "vase", "iron"), ((47, 9), (1, 43), (75, 14)), by=1, falling=False)


def test_the_order_is_that_of_one_property():
    assert PROBLEM.ranking() == ("rope", "iron", "vase")
    assert Problem(PROBLEM.items, PROBLEM.values, by=0, falling=True).ranking() == ("iron", "rope", "vase")


@pytest.mark.parametrize(
    ("answer", "exact", "pairs"),
    [("rope iron vase", 1, 1), ("iron rope vase", 0, 2 / 3), ("vase iron rope", 0, 0), ("rope iron", 0, 0), ("", 0, 0)],
)
def test_scores(answer, exact, pairs):
    prompt: Prompt = Ranking().write_prompt(PROBLEM, "ranking/train/0")
    assert prompt.messages[0]["content"].splitlines()[-1] == "Rank by weight, smallest first."
    scores = Ranking().score(reply(prompt, f"first the weights\n{answer}"))
    assert (scores["exact"], scores["pairs"]) == (exact, pytest.approx(pairs))


def test_no_two_items_are_equal_and_splits_share_no_list():
    task = Ranking(items=(5, 5), largest=6, properties=1, count=300)
    for index in range(100):
        assert len(set(task.problem(index).values)) == 5
    keys = [{task.split_key(task.on(split).problem(i)) for i in range(200)} for split in ("train", "held_out")]
    assert not keys[0] & keys[1]


@pytest.mark.parametrize("options", [{"items": (1, 3)}, {"properties": 5}, {"largest": 3}])
def test_arguments_without_problems_are_refused(options):
    with pytest.raises(ValueError, match="ranking"):
        Ranking(**options)
