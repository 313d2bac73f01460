import numpy as np
import pytest

from mmrl.rewards.boxes import contains, iou
from tasks.scenes import Attribute, Counting, Detection, Grounding, Pointing, Spatial, Statements
from tasks.scenes.scene import Scene, Shape, list_facts
from tasks.scenes.shapes import COLOURS, SHAPES, SMALLEST, draw_mask
from tasks.scenes.spatial import relate
from tests.tasks.replies import reply
from tests.times import fits

TASKS = (Attribute, Counting, Detection, Grounding, Pointing, Spatial, Statements)


def score(task, prompt, text):
    return task.score(reply(prompt, text))


@pytest.mark.parametrize("shape", SHAPES)
def test_masks_touch_all_edges_of_their_square_and_differ(shape):
    for side in range(SMALLEST, 40):
        mask = draw_mask(shape, side)
        assert mask[0].any() and mask[-1].any() and mask[:, 0].any() and mask[:, -1].any(), side
        assert all((mask != draw_mask(other, side)).any() for other in SHAPES if other != shape), side


@pytest.mark.parametrize("kind", TASKS)
def test_boxes_are_those_of_the_pixels(kind):
    task = kind(size=96)
    for index in range(40):
        prompt = task[index]
        (image,) = prompt.images
        assert image.shape == (96, 96, 3) and image.dtype == np.uint8
        rest = np.full((96, 96), True)
        for shape in prompt.info["shapes"]:
            x1, y1, x2, y2 = shape.box
            inside = image[y1:y2, x1:x2]
            rows, columns = np.nonzero((inside == COLOURS[shape.colour]).all(axis=-1))
            # no box overlaps another one, so that all of the object is seen
            assert (rows.min(), columns.min(), rows.max() + 1, columns.max() + 1) == (0, 0, y2 - y1, x2 - x1)
            assert rest[y1:y2, x1:x2].all()
            rest[y1:y2, x1:x2] = False
        assert (image[rest] == 255).all()


@pytest.mark.parametrize("kind", TASKS)
def test_no_scene_is_in_both_splits_and_problems_repeat(kind):
    # few places and objects, so that the same scene would come up in both splits without the refusal
    small = {"size": 16, "sides": (0.5, 0.5), "colours": ("red", "blue", "green"), "shapes": ("square", "cross")}
    small |= {"distractors": (0, 0)} if kind in (Attribute, Counting, Detection, Pointing) else {}
    small |= {"objects": (1, 1)} if kind in (Counting, Detection) else {}
    task = kind() if kind in (Spatial, Statements, Grounding) else kind(**small)
    scenes = [{task.on(split)[i].images[0].tobytes() for i in range(400)} for split in ("train", "held_out")]
    assert not scenes[0] & scenes[1] and all(len(each) > 20 for each in scenes)
    assert [task[i].answer for i in range(20)] == [kind(**vars(task))[i].answer for i in range(20)]


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("units", [None, 1000])
def test_the_expert_earns_the_maximum(kind, units):
    if units is not None and kind not in (Detection, Grounding, Pointing):
        pytest.skip("no coordinates")
    task = kind() if units is None else kind(units=units)
    for index in range(100):
        scores = score(task, task[index], task.demonstrate(index))
        assert scores.pop("padding", 0.0) == 0 and set(scores.values()) == {1.0}


def test_counts_are_equally_likely_and_those_of_the_pictures():
    task = Counting(describe="shape", distractors=(0, 3))
    counts = np.zeros(6)
    for index in range(300):
        prompt = task[index]
        noun = prompt.messages[0]["content"][1]["text"].split()[2]
        asked = [shape for shape in prompt.info["shapes"] if noun in (shape.shape + "s", shape.shape + "es")]
        assert len(asked) == prompt.answer
        counts[prompt.answer] += 1
    # chi-squared over 5 cells of 60; 18.5 is the 99.9 % point with 4 degrees of freedom
    assert counts[0] == 0 and sum((counts[1:] - 60) ** 2 / 60) < 18.5


def test_the_described_object_is_the_only_one_that_fits():
    for kind in (Grounding, Pointing):
        task = kind()
        for index in range(100):
            prompt = task[index]
            words = prompt.messages[0]["content"][1]["text"].strip("?.").split()[-2:]
            (target,) = [shape for shape in prompt.info["shapes"] if [shape.colour, shape.shape] == words]
            assert target.box == prompt.answer and len(prompt.info["shapes"]) >= 2


def test_absent_objects_are_absent():
    task = Grounding(absent=0.5)
    prompts = [task[i] for i in range(200)]
    absent = [prompt for prompt in prompts if prompt.answer is None]
    assert 70 < len(absent) < 130
    for prompt in absent:
        words = prompt.messages[0]["content"][1]["text"].strip("?").split()[-2:]
        assert not [shape for shape in prompt.info["shapes"] if [shape.colour, shape.shape] == words]
        assert score(task, prompt, "none")["exact"] == 1
        assert score(task, prompt, "0 0 9 9") == {"exact": 0, "iou": 0, "giou": 0, "format": 1}
    there = next(prompt for prompt in prompts if prompt.answer is not None)
    assert score(task, there, "none") == {"exact": 0, "iou": 0, "giou": 0, "format": 1}


def test_grounding_pays_by_overlap_and_refuses_padding():
    task = Grounding()
    prompt = task[0]
    x1, y1, x2, y2 = prompt.answer
    near = (x1, y1, x2 - 3, y2)
    scores = score(task, prompt, " ".join(map(str, near)))
    assert scores["iou"] == pytest.approx(iou(near, prompt.answer)) and scores["exact"] == 1
    assert scores["giou"] == pytest.approx((scores["iou"] + 1) / 2)  # the truth is the smallest box around both
    whole = score(task, prompt, "0 0 64 64")
    assert whole == {"exact": 0, "iou": 0, "giou": 0, "format": 1}
    right = task.demonstrate(0)
    for text in (f"{right} {right}", f"{right}; 0 0 9 9", f"{right}\n0 0 1 1", right.replace(" ", ","), f"[{right}]"):
        assert score(task, prompt, text)["exact"] == 0


def test_detection_pays_less_for_further_boxes():
    task = Detection(objects=(2, 2))
    prompt = task[0]
    right = task.demonstrate(0)
    padded = score(task, prompt, f"{right}; 0 0 1 1; 0 0 2 2")
    assert padded["map50"] == padded["detection"] == padded["padding"] == 0.5 and padded["map"] == 1
    assert padded["count_factor"] == 0.5
    assert score(task, prompt, right.split("; ")[0])["map50"] == 0.5
    assert score(task, prompt, "; ".join(reversed(right.split("; "))))["exact"] == 1
    assert set(score(task, prompt, "; ".join([right] * 40)).values()) == {0}
    none = Detection(objects=(0, 0), distractors=(1, 2))
    assert score(none, none[0], "none")["exact"] == 1 and score(none, none[0], "0 0 1 1")["detection"] == 0


def test_points_hit_inside_the_box_alone():
    task = Pointing()
    for index in range(50):
        x1, y1, x2, y2 = task[index].answer
        assert contains((x1, y1, x2, y2), (x1, y1)) and score(task, task[index], f"{x1} {y1}")["exact"] == 1
        assert score(task, task[index], f"{x2} {y1}")["exact"] == 0
        assert score(task, task[index], f"{x1} {y1} {x1} {y1}") == {"exact": 0, "format": 0}


def test_relations_by_hand():
    centre = Shape("square", "red", 20, 20, 10)
    for left, top, relation in ((0, 22, "left"), (40, 15, "right"), (24, 0, "above"), (20, 40, "below"), (0, 0, None)):
        assert relate(Shape("circle", "red", left, top, 10), centre) == relation
    assert relate(Shape("circle", "red", 22, 22, 6), centre) is None  # the same centre


def test_attributes_are_asked_of_one_object():
    for ask, describe in (("colour", "shape"), ("shape", "colour")):
        task = Attribute(ask_for=ask, describe=describe)
        for index in range(50):
            prompt = task[index]
            text = prompt.messages[0]["content"][1]["text"]
            fits = [s for s in prompt.info["shapes"] if text.endswith((f"the {s.shape}?", f"the {s.colour} shape?"))]
            assert [getattr(shape, ask) for shape in fits] == [prompt.answer]
    assert "Which colour is the shape?" in str(Attribute(describe="any", distractors=(0, 0))[0].messages)


def test_statements_are_scored_one_by_one():
    task = Statements()
    answers = [task[i].answer for i in range(200)]
    assert 0.4 < np.mean(answers) < 0.6
    prompt = task[0]
    words = task.demonstrate(0).split()
    words[1] = {"yes": "no", "no": "yes"}[words[1]]
    assert score(task, prompt, " ".join(words)) == {"exact": 0, "share": 0.75, "format": 1}
    for text in ("yes", "yes " * 5, "yes no yes maybe", "Yes no yes no", ""):
        assert score(task, prompt, text)["share"] == 0


def test_facts_name_each_object_and_its_region():
    shapes = (Shape("ring", "red", 0, 0, 10), Shape("cross", "blue", 27, 27, 10), Shape("circle", "green", 54, 27, 10))
    assert list_facts(Scene(shapes, 64, "black")) == (
        "a red ring at the top left",
        "a blue cross at the centre",
        "a green circle at the middle right",
    )


def test_a_thousand_scenes_take_less_than_a_second_of_a_core():
    task = Counting()
    task[0]
    assert fits(lambda: [task[index] for index in range(1000)], 1)


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (Counting, {"shapes": ("star",)}, "shapes must be distinct ones of"),
        (Counting, {"sides": (0.01, 0.2)}, "at least 7 pixels of 64"),
        (Counting, {"objects": (3, 2)}, "objects must be the fewest and the most"),
        (Counting, {"distractors": (0, 2)}, "every object fits the description"),
        (Counting, {"describe": "size"}, "describe one of"),
        (Grounding, {"absent": 1.0}, r"absent must be in \[0, 1\)"),
        (Grounding, {"units": 4}, "units=4 must make the smallest object"),
        (Attribute, {"describe": "colour"}, "describe any or the other one"),
        (Statements, {"statements": 30}, "statements must be at least 2"),
        (Spatial, {"question": "Where is the {}?"}, "twice"),
    ],
)
def test_refusals_name_the_task_and_the_key(kind, arguments, message):
    with pytest.raises(ValueError, match=message) as caught:
        kind(**arguments)
    assert kind.name in str(caught.value)


def test_a_picture_that_cannot_hold_the_objects_is_refused():
    with pytest.raises(ValueError, match="draws gave no problem"):
        Counting(objects=(9, 9), sides=(0.5, 0.5))[0]
