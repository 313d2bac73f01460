"""The interface of text environments."""

import pytest

from mmrl.core.text_environment import EnvironmentTask, environment_task
from tests.text_environments import Count
from tests.tiny_recipes import Counting


def test_a_saved_state_continues_with_the_same_steps():
    task = Count(chance=True)
    environment, other = task.make_environment(), task.make_environment()
    environment.reset(task[2], seed=5)
    middle = environment.step("+")
    state = environment.state_dict()
    following = [environment.step(action) for action in "-+-+"]
    other.reset(task[1], seed=0)
    assert other.load_state_dict(state) == middle
    assert [other.step(action) for action in "-+-+"] == following
    assert state["actions"] == ["+"]  # later steps do not change a saved state


def test_a_task_without_environments_is_refused():
    assert isinstance(Count(), EnvironmentTask) and environment_task(Count(), "rollout=x") == Count()
    with pytest.raises(ValueError, match=r"rollout=x needs a task of text environments, and task 'counting' has none"):
        environment_task(Counting(), "rollout=x")
