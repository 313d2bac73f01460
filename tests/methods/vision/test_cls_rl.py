"""The rewards of image classification, by hand."""

import pytest

from mmrl.methods.vision.cls_rl import direct_answer, thought_answer


@pytest.mark.parametrize(
    ("completion", "reward"),
    [("Tabby cat", 1), ("tabby cat", 0), ("It is a Tabby cat", 0), ("Tabby cat ", 0), ("", 0)],
)
def test_without_a_thought_the_completion_is_the_class(completion, reward):
    assert direct_answer(completion, "Tabby cat") == reward


@pytest.mark.parametrize(
    ("completion", "reward"),
    [
        ("<think>fur</think><answer>Tabby cat</answer>", 2),
        ("<think>fur</think>\n<answer> tabby CAT </answer>", 2),
        ("<think>fur</think><answer>dog</answer>", 1),
        ("<answer>tabby cat</answer>", 1),  # no thought
        ("<think>fur</think><answer>tabby cat</answer>!", 1),  # something behind it
        ("<answer>dog</answer> or <answer>tabby cat</answer>", 0),  # the first counts
        ("Tabby cat", 0),
        ("", 0),
    ],
)
def test_with_a_thought_the_class_stands_in_tags(completion, reward):
    assert thought_answer(completion, "Tabby cat") == reward
