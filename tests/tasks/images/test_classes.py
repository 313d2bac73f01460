"""Classification with base and new classes: the lists of classes by hand, equal shots, disjoint splits."""

from collections import Counter

import pytest

from mmrl.evaluation.metrics.by_task import SuccessRateByTask
from tasks.scenes.classes import Classification
from tasks.scenes.thoughts import ThoughtfulClassification
from tests.tasks.replies import reply

TASK = Classification(size=32, sides=(0.3, 0.5), count=12)
BASE, NEW = ["red circle", "blue square", "red triangle"], ["blue circle", "red square", "blue triangle"]


def test_the_list_of_classes_is_that_of_the_part():
    for part, names in (("base", BASE), ("new", NEW)):
        task = Classification(size=32, sides=(0.3, 0.5), part=part)
        for index in range(6):
            prompt = task[index]
            assert prompt.messages[0]["content"][1]["text"] == f"{', '.join(names)}?"
            assert prompt.answer == names[index % 3] and prompt.info["task"] == part
            (shape,) = prompt.info["shapes"]
            assert f"{shape.colour} {shape.shape}" == prompt.answer


def test_each_class_has_as_many_images_and_all_problems_list_their_own_part():
    assert Counter(TASK[i].answer for i in range(12)) == dict.fromkeys(BASE, 4)
    whole = Classification(size=32, sides=(0.3, 0.5), part="all", held_out=60).on("held_out")
    prompts = [whole[i] for i in range(60)]
    assert Counter(prompt.answer for prompt in prompts) == dict.fromkeys([*BASE, *NEW], 10)
    assert all(prompt.answer in prompt.messages[0]["content"][1]["text"] for prompt in prompts)
    # an answer of the base class to every image is right for a third of the base images and for no new one
    episodes = [reply(prompt, "red circle") for prompt in prompts]
    for episode in episodes:
        episode.scores = whole.score(episode)
    rates = SuccessRateByTask("exact")(episodes)
    assert (rates["base/mean"], rates["new/mean"]) == (pytest.approx(1 / 3), 0.0)


def test_no_image_is_in_both_splits():
    images = [
        {Classification(size=32, sides=(0.3, 0.5), split=split, count=100)[i].images[0].tobytes() for i in range(100)}
        for split in ("train", "held_out")
    ]
    assert not images[0] & images[1]


@pytest.mark.parametrize(("text", "exact", "form"), [("red circle", 1, 1), ("red square", 0, 1), ("circle", 0, 0)])
def test_verify(text, exact, form):
    assert TASK.verify(text, TASK[0]) == {"exact": exact, "format": form}
    assert TASK.verify(TASK.demonstrate(0), TASK[0])["exact"] == 1


@pytest.mark.parametrize("wrong", [{"part": "old"}, {"question": "?"}, {"distractors": [0, 1]}, {"shapes": ["circle"]}])
def test_refusals(wrong):
    with pytest.raises(ValueError, match="scenes_classification"):
        Classification(size=32, sides=(0.3, 0.5), **wrong)


def test_a_thought_names_colour_and_shape():
    task = ThoughtfulClassification(size=32, sides=(0.3, 0.5), count=12)
    assert task.demonstrate(0) == "<think>red; circle</think><answer>red circle</answer>"
    scores = [
        task.score(reply(task[0], text)) for text in (task.demonstrate(0), "red circle", "<answer>blue square</answer>")
    ]
    assert [score["exact"] for score in scores] == [1, 0, 0]
