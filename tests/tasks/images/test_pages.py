"""Pages that are searched for and looked at closely."""

import numpy as np
import pytest

from mmrl.tools.base import BadArguments
from mmrl.tools.views import Crop, NoImage
from tasks.acuity.patch import COLOURS, draw_image
from tasks.pages import Pages
from tasks.pages.search import NoPageFound, PageSearch
from tasks.pages.words import WORDS, Meanings, means

TASK = Pages(topics=30)


def begin(task, prompt):
    """Search and crop of one episode, which know each other."""
    tools = {name: tool.start(prompt) for name, tool in {"?": PageSearch(task), "[": Crop(task.units)}.items()}
    for tool in tools.values():
        tool.meet(tools)
    return tools["?"], tools["["]


def test_the_script_finds_its_page_and_cuts_out_the_patch():
    for index in range(40):
        prompt, (query, box, answer) = TASK[index], TASK.script(index)
        search, crop = begin(TASK, prompt)
        (page,) = search.run(query[1:-1]).images
        assert search.notes() == {"pages": prompt.info["pages"]} and page.shape == (128, 128, 3)
        x1, y1, x2, y2 = prompt.info["box"]
        (part,) = crop.run(box[1:-1]).images
        patch = TASK.page(index).patch
        assert (part == draw_image([patch], 128)[y1:y2, x1:x2]).all() and (part == page[y1:y2, x1:x2]).all()
        assert answer == prompt.answer and means(answer, WORDS[patch.direction][0])


def test_a_topic_has_four_pages_which_repeated_searches_show_one_after_the_other():
    search, _ = begin(TASK, TASK[0])
    topic = TASK.page(0).topic
    for _ in range(4):
        search.run(topic)
    assert search.notes()["pages"] == [f"{topic} {colour}" for colour in COLOURS]
    with pytest.raises(NoPageFound, match="no further page"):
        search.run(topic)
    with pytest.raises(BadArguments):
        search.run("  ")
    assert search.start(TASK[1]).notes() == {"pages": []}


def test_a_crop_before_the_first_page_is_an_error_of_the_caller():
    _, crop = begin(TASK, TASK[0])
    with pytest.raises(NoImage, match="no image has been shown"):
        crop.run("0 0 1 1")


def test_a_vague_script_searches_twice_and_still_ends_at_its_page():
    task = Pages(topics=30, vague=1.0)
    twice = 0
    for index in range(20):
        topic, query, _, _ = task.script(index)
        search, _ = begin(task, task[index])
        search.run(topic[1:-1])
        if search.notes()["pages"] != task[index].info["pages"]:  # one in four is the right one at once
            search.run(query[1:-1])
            twice += search.notes()["pages"][1:] == task[index].info["pages"]
        else:
            twice += 1
    assert twice == 20


def test_no_page_is_asked_about_in_both_splits_and_every_direction_is_as_likely():
    held_out = TASK.on("held_out")
    asked = [{task[index].info["pages"][0] for index in range(200)} for task in (TASK, held_out)]
    assert not asked[0] & asked[1] and TASK.collection is held_out.collection
    counts = np.bincount([list(WORDS).index(page.patch.direction) for page in Pages(topics=200).collection.pages])
    assert ((counts - 200) ** 2 / 200).sum() < 16.3  # chi-squared, 99.9 % point with 3 degrees of freedom


def test_words_that_mean_the_same_are_as_often_right_as_wrong():
    assert means("flat", "level") and not means("flat", "climb") and not means("", "flat")
    labels = [Meanings()[index].answer for index in range(400)]
    assert abs(labels.count("y") - 200) < 40  # 4 standard deviations


@pytest.mark.parametrize("wrong", [{"topics": 0}, {"topics": 501}, {"units": 0}, {"vague": 1.5}, {"size": 40}])
def test_wrong_arguments_are_refused(wrong):
    with pytest.raises(ValueError, match="pages"):
        Pages(**wrong)


def test_pages_of_another_task_are_refused():
    with pytest.raises(ValueError, match="task=pages alone, not those of Meanings"):
        PageSearch(Meanings())
