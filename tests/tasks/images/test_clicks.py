"""Windows with widgets to click."""

import numpy as np
import pytest

from mmrl.rewards.boxes import iou
from mmrl.rollouts.text.scripted import scripted_episode
from tasks.clicks import Clicks
from tasks.clicks.task import VERBS, weigh_size
from tasks.clicks.widgets import COLOURS, KINDS, THEMES, Widget, aspect, draw_widget


def score(task, prompt, text):
    return task.score(scripted_episode(prompt, text))


@pytest.mark.parametrize("kind", KINDS)
def test_the_pixels_of_a_widget_touch_all_edges_of_its_box(kind):
    for height in (5, 6, 9, 14):
        box = (3, 4, 3 + round(height * aspect(kind)), 4 + height)
        image = np.full((80, 80, 3), 7, np.uint8)
        draw_widget(image, Widget(kind, "red", box))
        ink = (image != 7).any(2)
        rows, columns = ink.any(1).nonzero()[0], ink.any(0).nonzero()[0]
        assert (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1) == box
        assert (image == COLOURS["red"]).all(2).any()


def test_kinds_of_one_size_look_different():
    images = []
    for kind in ("checkbox", "radio"):
        image = np.full((20, 20, 3), 7, np.uint8)
        draw_widget(image, Widget(kind, "red", (5, 5, 11, 11)))
        images.append(image)
    assert (images[0] != images[1]).any(2).sum() > 10


def test_the_named_widget_is_the_only_one_and_nothing_else_is_in_its_box():
    task = Clicks()
    for index in range(100):
        prompt = task[index]
        text = prompt.messages[0]["content"][1]["text"]
        names = [(widget.colour, widget.kind) for widget in prompt.info["widgets"]]
        assert len(set(names)) == len(names) and 3 <= len(names) <= 5
        colour, kind = text.rstrip(".").split()[-2:]
        (widget,) = [w for w in prompt.info["widgets"] if (w.colour, w.kind) == (colour, kind)]
        assert widget.box == prompt.answer and text.startswith(VERBS[kind])
        x1, y1, x2, y2 = widget.box
        known = {COLOURS[colour], (255, 255, 255), *(theme[0] for theme in THEMES.values())}
        assert {tuple(pixel) for pixel in prompt.images[0][y1:y2, x1:x2].reshape(-1, 3).tolist()} <= known


@pytest.mark.parametrize("options", [{}, {"units": 1000}, {"form": "box"}, {"form": "box", "units": 100, "size": 96}])
def test_the_expert_hits(options):
    task = Clicks(**options)
    for index in range(60):
        scores = score(task, task[index], task.demonstrate(index))
        weight, size = scores.pop("small"), scores.pop("size", 0.5)
        assert set(scores.values()) == {1.0} and 1 / 3 <= weight <= 1 and size == 0.5


def test_points_count_inside_the_box_alone():
    task = Clicks()
    prompt = task[0]
    x1, y1, x2, y2 = prompt.answer
    assert score(task, prompt, f"{x1} {y1}")["exact"] == 1
    for text in (f"{x2} {y1}", f"{x1} {y2}", f"{x1} {y1} {x1} {y1}", f"{x1},{y1}", f"{x1} {y1}; 0 0", "65 3", ""):
        assert score(task, prompt, text)["exact"] == 0


def test_boxes_are_paid_for_hit_overlap_and_edges():
    task = Clicks(form="box")
    prompt = task[0]
    x1, y1, x2, y2 = prompt.answer
    wide = (x1 - 1, y1 - 1, x2 + 1, y2 + 1)
    scores = score(task, prompt, " ".join(map(str, wide)))
    edges = 1 - 1 / 64
    assert scores["iou"] == pytest.approx(iou(wide, prompt.answer)) and scores["exact"] == 1
    assert scores["gui"] == pytest.approx((1 + scores["iou"] / 4 + edges / 8) / 1.375)
    assert score(task, prompt, "0 0 64 64")["gui"] < scores["gui"]
    width, height = x2 - x1, y2 - y1
    ratio = (width + 2) * (height + 2) / (width * height)
    assert scores["size"] == pytest.approx(ratio / (1 + ratio))
    assert score(task, prompt, task.demonstrate(0))["size"] == 0.5 > score(task, prompt, "0 0 1 1")["size"]


def test_small_targets_weigh_more():
    assert weigh_size(0.01) == weigh_size(0.001) == 1 and weigh_size(0.02) == pytest.approx(2 / 3)
    assert weigh_size(0.5) == pytest.approx((0.5 + 0.02) / 1.5)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kinds": ("menu",)},
        {"form": "line"},
        {"theme": "blue"},
        {"widgets": (0, 1)},
        {"heights": (0.01, 0.1)},
        {"units": 8},
    ],
)
def test_wrong_arguments_are_refused(wrong):
    with pytest.raises(ValueError, match="clicks"):
        Clicks(**wrong)
