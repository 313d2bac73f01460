"""The reward of image classification, by hand."""

import pytest

from mmrl.methods.vision.cls_rl import direct_answer


@pytest.mark.parametrize(
    ("completion", "reward"),
    [("Tabby cat", 1), ("tabby cat", 0), ("It is a Tabby cat", 0), ("Tabby cat ", 0), ("", 0)],
)
def test_without_a_thought_the_completion_is_the_class(completion, reward):
    assert direct_answer(completion, "Tabby cat") == reward
