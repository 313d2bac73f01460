"""Questions about a picture or about its caption: the same scenes, answers that the words alone give."""

import pytest

from tasks.scenes.described import DescribedCounting
from tests.tasks.replies import reply

SMALL = {"size": 32, "sides": (0.22, 0.3), "describe": "colour", "count": 60, "held_out": 60}


def text_of(prompt):
    return prompt.messages[0]["content"][-1]["text"]


def test_words_and_pictures_ask_the_same():
    image, text = DescribedCounting(**SMALL), DescribedCounting(**SMALL, modality="text")
    for index in range(40):
        one, other = image[index], text[index]
        assert one.answer == other.answer and len(one.images) == 1 and not other.images
        caption, _, question = text_of(other).partition(". ")
        assert question == text_of(one)
        # the caption has the first letter of the colour of every object, so it is enough
        assert sorted(caption.split()) == sorted(shape.colour[0] for shape in one.info["shapes"])
        colour = next(c for c in image.colours if c in question)
        assert caption.split().count(colour[0]) == one.answer
        assert (one.info["task"], other.info["task"]) == ("image", "text")


def test_both_are_half_and_half_and_demonstrations_are_right():
    for thoughts in (True, False):
        task = DescribedCounting(**SMALL, modality="both", thoughts=thoughts)
        prompts = [task[index] for index in range(40)]
        assert [bool(prompt.images) for prompt in prompts] == [True, False] * 20
        for index, prompt in enumerate(prompts):
            answer = task.demonstrate(index)
            assert task.score(reply(prompt, answer))["exact"] == 1
            assert answer.startswith("<think>") == thoughts


def test_another_modality_is_refused():
    with pytest.raises(ValueError, match="modality must be one of"):
        DescribedCounting(**SMALL, modality="sound")
