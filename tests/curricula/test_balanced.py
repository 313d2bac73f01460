"""As many problems of each task."""

from collections import Counter

import pytest

from mmrl.curricula.balanced import BalancedTasks
from tests.curricula.test_prioritised import Kinds, at
from tests.curricula.test_stratified import Plainly

LAWS = [lambda: BalancedTasks("kind")]


def test_an_iteration_has_as_many_problems_of_each_task():
    curriculum, task = BalancedTasks(), Kinds(16)  # 4 pushes, 12 reaches
    whole = [curriculum.select(4, at(i, task)) for i in range(6)]
    for chosen in whole:
        assert Counter(task[index].info["task"] for index in chosen) == {"push": 2, "reach": 2}
        for rank in range(2):  # the prompts of two processes
            assert Counter(task[index].info["task"] for index in chosen[rank::2]) == {"push": 1, "reach": 1}
    count = Counter(index for chosen in whole for index in chosen)
    assert set(count) == set(range(16))  # each reach once and each push in every permutation of four
    assert all(count[index] == (1 if index % 4 else 3) for index in count)

    again = BalancedTasks()
    again.select(12, at(0, task))
    resumed = BalancedTasks()
    resumed.load_state_dict(again.state_dict())
    assert resumed.select(4, at(3, task)) == whole[3]
    with pytest.raises(ValueError, match="multiple of 2"):
        curriculum.select(3, at(6, task))
    with pytest.raises(ValueError, match="no info 'task'"):
        BalancedTasks().select(4, at(0, Plainly(8)))
