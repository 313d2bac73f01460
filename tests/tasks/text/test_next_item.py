"""Next items: histories of a Markov chain, its best answers, the catalogue, and arguments."""

from collections import Counter

import pytest

from tasks.ranking import NextItem
from tasks.ranking.next_item import draw_successors
from tests.tasks.replies import reply

TASK = NextItem()
AFTER = draw_successors(50, 4, 0)


def test_items_follow_their_successors_with_halving_probabilities():
    items, ranks = TASK.items(), Counter()
    for index in range(1500):
        for before, after in zip(TASK.problem(index), TASK.problem(index)[1:]):
            ranks[AFTER[items.index(before)].index(items.index(after))] += 1
    # 8, 4, 2 and 1 of 15; at least 3,000 transitions, so a standard error of at most .0091
    assert [ranks[k] / ranks.total() for k in range(4)] == pytest.approx([8 / 15, 4 / 15, 2 / 15, 1 / 15], abs=0.03)
    assert all(len(set(row)) == 4 and item not in row for item, row in enumerate(AFTER))


def test_scores_and_catalogue():
    prompt = TASK[0]
    assert prompt.messages[0]["content"] == f"{' '.join(TASK.problem(0)[:-1])}?"
    assert TASK.score(reply(prompt, prompt.answer)) == {"exact": 1, "format": 1}
    other = next(item for item in TASK.items() if item != prompt.answer)
    assert TASK.score(reply(prompt, other)) == {"exact": 0, "format": 1}
    assert TASK.score(reply(prompt, "z9")) == TASK.score(reply(prompt, "")) == {"exact": 0, "format": 0}
    assert len(set(TASK.allowed_outputs())) == 50 and TASK.allowed_outputs()[11] == "b1"
    assert NextItem(extract="boxed").allowed_outputs()[0] == NextItem(extract="boxed").write_answer("a0")


@pytest.mark.parametrize(
    "options", [{"categories": 9}, {"per_category": 1}, {"length": (0, 2)}, {"categories": 1, "successors": 10}]
)
def test_arguments_without_problems_are_refused(options):
    with pytest.raises(ValueError, match="next_item"):
        NextItem(**options)
