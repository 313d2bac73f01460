"""Solids on a table and the boxes of their pixels."""

import pickle

import numpy as np
import pytest

from mmrl.__main__ import main
from mmrl.core.rng import derive_rng
from mmrl.rollouts.text.scripted import scripted_episode
from sims.solids import SolidPainter
from tasks.scenes import Counting, Grounding, Spatial

SOLIDS = {"painter": SolidPainter(), "shapes": ("cube", "ball", "cylinder")}


def paint(kinds, number=0, size=64, sides=(12, 20)):
    rng = derive_rng("solids", number)
    while (scene := SolidPainter().paint(rng, kinds, size, sides, 0.0)) is None:
        pass
    return scene


@pytest.mark.parametrize("shape", ["cube", "ball", "cylinder"])
def test_the_box_is_that_of_the_pixels_in_the_solids_colour(shape):
    for number in range(8):
        scene = paint([(shape, "red")], number)
        red, green, blue = np.moveaxis(scene.render().astype(int), 2, 0)
        ink = (red > 2 * green) & (red > 2 * blue)
        rows, columns = np.flatnonzero(ink.any(1)), np.flatnonzero(ink.any(0))
        assert scene.shapes[0].box == (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1)
        x1, y1, x2, y2 = scene.shapes[0].box
        assert x1 > 0 and y1 > 0 and x2 < 64 and y2 < 64 and 8 <= x2 - x1 <= 28


def test_a_ball_is_round_and_a_cylinder_is_not():
    ball, cylinder = (paint([(shape, "blue")], 3, 128, (40, 40)).shapes[0].box for shape in ("ball", "cylinder"))
    assert abs((ball[2] - ball[0]) - (ball[3] - ball[1])) <= 2
    assert (cylinder[3] - cylinder[1]) - (cylinder[2] - cylinder[0]) > 2


def test_the_same_draws_give_the_same_scene():
    kinds = [("cube", "red"), ("ball", "green")]
    one, two = paint(kinds), paint(kinds)
    assert one.shapes == two.shapes and (one.image == two.image).all()


@pytest.mark.parametrize("kind", [Grounding, Counting, Spatial])
def test_questions_about_flat_scenes_are_asked_of_solids_too(kind):
    options = {"objects": (1, 3)} if kind is Counting else {}
    task = pickle.loads(pickle.dumps(kind(**SOLIDS, **options)))
    for index in range(10):
        prompt = task[index]
        assert prompt.images[0].shape == (64, 64, 3) and len(prompt.info["facts"]) == len(prompt.info["shapes"])
        assert task.score(scripted_episode(prompt, task.demonstrate(index)))["exact"] == 1


def test_shapes_that_the_painter_lacks_are_refused():
    with pytest.raises(ValueError, match="shapes must be distinct ones of"):
        Grounding(painter=SolidPainter())
    with pytest.raises(ValueError, match="elevations"):
        SolidPainter((10, 95))


def test_the_command_line_takes_the_painter(tmp_path):
    words = ["evaluate", "task=solids_grounding", "policy=oracle", "count=2", f"run_dir={tmp_path}"]
    assert main(words) == 0
