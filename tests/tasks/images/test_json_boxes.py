"""Boxes as JSON after a thought: readings by hand, scores as those of the plain form, and forms that are refused."""

import json

import pytest

from tasks.scenes import Detection, Grounding
from tasks.scenes.json_boxes import JSONDetection, JSONGrounding, read_boxes
from tests.tasks.replies import reply

SMALL = {"size": 32, "units": 8, "sides": (0.25, 0.4)}
THOUGHT = "<think>it is on the left</think>"


@pytest.mark.parametrize(
    ("answer", "boxes"),
    [
        ('[{"bbox_2d": [1, 2, 5, 6], "label": "circle"}]', [[1, 2, 5, 6]]),
        ('{"bbox_2d": [1, 2, 5, 6]}', [[1, 2, 5, 6]]),
        ("None", []),
        ("[]", []),
        ('[{"bbox_2d": [1, 2, 5, 6]}, {"bbox_2d": [0, 0, 1, 1]}]', [[1, 2, 5, 6], [0, 0, 1, 1]]),
        ('[{"bbox_2d": [1, 2, 5, 6], "label": "square"}]', None),  # another class
        ('[{"bbox_2d": [1, 2, 5, 6], "score": 1}]', None),
        ('[{"bbox_2d": [1, 2, 5]}]', None),
        ('[{"bbox_2d": [1, 2, 5.0, 6]}]', None),
        ('[{"bbox_2d": [true, 2, 5, 6]}]', None),
        ('[{"bbox_2d": [-1, 2, 5, 6]}]', None),
        ("1 2 5 6", None),
        ("", None),
        ("[" * 3000, None),
        ("[" + " " * 5000 + "]", None),
    ],
)
def test_what_is_read(answer, boxes):
    assert read_boxes(answer, "circle") == boxes


@pytest.mark.parametrize(("kind", "plain"), [(JSONGrounding, Grounding), (JSONDetection, Detection)])
def test_demonstrations_are_right_and_scores_are_those_of_plain_coordinates(kind, plain):
    task, other = kind(**SMALL), plain(**SMALL)
    for index in range(30):
        prompt = task[index]
        scores = task.score(reply(prompt, task.demonstrate(index)))
        assert scores["exact"] == scores["format"] == 1
        boxes = [[0, 0, 4, 4], [1, 1, 6, 7]][: 1 + (kind is JSONDetection)]
        answer = f"{THOUGHT}<answer>{json.dumps([{'bbox_2d': box} for box in boxes])}</answer>"
        expected = other.verify("; ".join(" ".join(map(str, box)) for box in boxes), prompt)
        assert task.score(reply(prompt, answer)) == {**expected, "format": 1.0}


@pytest.mark.parametrize(
    ("text", "form", "right"),
    [
        ("{}", 1.0, 1.0),
        ("<answer>{answer}</answer>", 0.0, 1.0),  # no thought
        ("<think>a</think>so <answer>{answer}</answer>", 0.0, 1.0),  # text between them
        ("<think>a</think><answer>{answer}</answer>.", 0.0, 1.0),
        ("<think>a</think><answer>left</answer>", 0.0, 0.0),
        ("<think>a<answer>{answer}</answer>", 0.0, 0.0),
    ],
)
def test_the_format_is_that_of_the_whole_completion(text, form, right):
    task = JSONGrounding(**SMALL)
    prompt = task[0]
    answer = json.dumps([{"bbox_2d": list(prompt.answer)}])
    text = f"<think>a</think><answer>{answer}</answer>" if text == "{}" else text.replace("{answer}", answer)
    scores = task.score(reply(prompt, text))
    assert (scores["format"], scores["iou"]) == (form, right)


def test_the_prompt_asks_for_thought_and_json_and_absent_objects_are_none():
    task = JSONGrounding(**SMALL, absent=0.5, describe="colour")
    prompts = [task[index] for index in range(40)]
    assert all(p.messages[0]["content"][1]["text"].endswith("in JSON format.") for p in prompts)
    absent = [index for index, prompt in enumerate(prompts) if prompt.answer is None]
    assert absent and task.demonstrate(absent[0]) == "<think></think><answer>None</answer>"
    assert task.score(reply(prompts[absent[0]], f"{THOUGHT}<answer>None</answer>"))["exact"] == 1


def test_refusals():
    with pytest.raises(ValueError, match="extract must be tags"):
        JSONGrounding(**SMALL, extract="boxed")
