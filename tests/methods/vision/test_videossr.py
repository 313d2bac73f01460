"""VideoSSR: which score an answer is paid by, and the three tasks and thirteen corruptions of its recipe."""

from collections import Counter

import pytest
from hydra.utils import instantiate

from mmrl.methods.vision.videossr import grade_pretext
from tasks.clips.corruptions import CORRUPTIONS, SYMMETRIES
from tests.composed_words import compose_words
from tests.curricula.test_prioritised import at
from tests.tasks.replies import reply


def test_one_score_is_the_reward():
    assert (grade_pretext(iou=1 / 3), grade_pretext(counts=5 / 6), grade_pretext(order=8 / 9)) == (1 / 3, 5 / 6, 8 / 9)
    assert grade_pretext(iou=0.0) == 0
    for scores in ({}, {"iou": 1.0, "order": 1.0}):
        with pytest.raises(ValueError, match="grade_pretext needs one of the scores"):
            grade_pretext(**scores)


ANSWERS = {"grounding": "1-8", "counting": "1,1,1", "jigsaw": "2 1 3 4"}


def test_answers_of_every_task_are_paid_by_their_nearness():
    """The whole clip overlaps by its share of frames; a swap of neighbours in an order of four costs 2 / 8."""
    data = compose_words(("recipe=videossr",)).data
    task = instantiate(data.task, _convert_="all")
    small = type(task)(task.parts, counts=dict.fromkeys(task.parts, 16))
    indices = instantiate(data.curriculum).select(24, at(0, small))
    assert Counter(small[index].info["task"] for index in indices) == dict.fromkeys(ANSWERS, 8)
    reward = instantiate(data.reward)
    reward.weights = {"grade_pretext": data.reward.weights.grade_pretext}
    reward.check_task(small)
    for index in indices:
        prompt = small[index]
        kind, right = prompt.info["task"], prompt.answer
        if kind == "grounding":
            length = right[1] - right[0] + 1
            either = prompt.info["corruption"] in SYMMETRIES and (right[0] == 1 or right[1] == 8)
            expected = max(length, 8 - length if either else 0) / 8
        elif kind == "counting":
            expected = sum(max(0.0, 1 - abs(1 - count) / max(count, 1)) for count in right) / 3
        else:
            orders = [right, tuple(5 - place for place in right)]
            steps = [sum(abs((2, 1, 3, 4).index(c) - order.index(c)) for c in right) for order in orders]
            expected = 1 - min(steps) / 8
        for text, value in ((ANSWERS[kind], expected), (small.demonstrate(index), 1.0), ("?", 0.0)):
            episode = reply(prompt, text)
            episode.scores = small.score(episode)
            episode.scores |= reward.scores([episode])[0]
            assert reward([episode]) == [pytest.approx(value)]


def test_the_recipe_has_the_thirteen_corruptions():
    parts = compose_words(("recipe=videossr",)).data.task.parts
    assert list(parts.grounding.corruptions) == list(CORRUPTIONS)
    assert len(CORRUPTIONS) == 13 + 1  # a rotation by 180 degrees and one by 90 are one of the paper's
