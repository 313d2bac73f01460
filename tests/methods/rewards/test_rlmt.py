"""RLMT: advantages of the paper's form by hand, and a reward that does not depend on the thought."""

import pytest
import torch

from mmrl.methods.rewards.rlmt import ThoughtDemonstrations, add_thought
from mmrl.ops.advantage import group_advantage
from mmrl.rewards.models.scorer import response_of
from tasks.preferences.planted import PlantedPreferences
from tests.tasks.replies import reply


def test_the_advantages_by_hand():
    """Scores 2.1, .5, -1, .4: mean .5, squared deviations 2.56, 0, 2.25, .01, sample std sqrt(4.82 / 3) = 1.267544."""
    group = torch.zeros(4, dtype=torch.long)
    advantages = group_advantage(torch.tensor([2.1, 0.5, -1.0, 0.4]), group, "mean", "sample", 1e-6)
    assert advantages.tolist() == pytest.approx([1.262283, 0, -1.183390, -0.078893], abs=1e-5)
    assert group_advantage(torch.ones(4), group, "mean", "sample", 1e-6).tolist() == [0.0] * 4


def test_the_reward_model_never_reads_a_thought():
    assert add_thought("cab") == "<think>abc</think>cab"
    for thought in ("", "abc", "a\nb", "better than all"):
        assert response_of(f"<think>{thought}</think> cab", "required") == "cab"
    for wrong in ("cab", "<think>abc", "cab</think>", "<think>a</think>b<think>c</think>", "x<think>a</think>cab"):
        assert response_of(wrong, "required") == ""


def test_the_gold_reward_of_a_task_is_that_of_the_response():
    task = PlantedPreferences()
    plain, with_thought = (task.score(reply(task[0], text)) for text in ("hahaha", "<think>aaahhh</think>hahaha"))
    assert plain == with_thought == {"gold": pytest.approx(0.0, abs=1e-9)}
    assert task.score(reply(task[0], "<think>hhhhhh"))["gold"] <= 0


def test_demonstrations_that_are_no_texts_are_refused():
    with pytest.raises(ValueError, match="are texts"):
        ThoughtDemonstrations().encode({}, 3, None)
