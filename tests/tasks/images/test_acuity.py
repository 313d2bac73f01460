"""Striped patches in large images."""

import numpy as np
import pytest
from PIL import Image

from mmrl.tools.views import Zoom
from tasks.acuity import Acuity
from tasks.acuity.patch import DIRECTIONS, draw_tone


def test_tones_change_across_the_stripes_and_not_along_them():
    along = {"horizontal": (0, 1), "vertical": (1, 0), "rising": (-1, 1), "falling": (1, 1)}
    for direction in along:
        tone = draw_tone(28, direction, 3)[8:20, 8:20]
        changes = {d: np.abs(tone - np.roll(tone, s, (0, 1)))[1:-1, 1:-1].mean() for d, s in along.items()}
        assert min(changes, key=lambda d: changes[d]) == direction and sorted(changes.values())[1] > 2 * min(
            changes.values()
        )


def test_the_expert_zooms_in_on_the_patch():
    task = Acuity(patches=(1, 3))
    for index in range(50):
        prompt, (call, answer) = task[index], task.script(index)
        x1, y1, x2, y2 = prompt.info["box"]
        part = Zoom(units=task.units).start(prompt).run(call[1:-1]).images[0]
        patch = prompt.images[0][y1:y2, x1:x2]
        assert answer == prompt.answer and part.shape == (64, 64, 3)
        assert any((part[top : top + 28, left : left + 28] == patch).all() for top in range(37) for left in range(37))


def test_the_stripes_cannot_be_read_from_the_image_at_32_pixels():
    # the nearest neighbours of aligned images know the direction at the resolution of a closer look, here they do not
    task = Acuity()
    problems = [task.problem(i)[0] for i in range(900)]
    answers = np.array([problem.direction for problem in problems])

    def read(index, side):
        image = Image.fromarray(task[index].images[0]).resize((side, side), Image.Resampling.BICUBIC)
        middle = [round((edge + 14) * side / 256) for edge in (problems[index].left, problems[index].top)]
        reach = side * 14 // 256 + 1
        ink = np.pad(255 - np.asarray(image, dtype=float).mean(2), reach)
        part = ink[middle[1] : middle[1] + 2 * reach, middle[0] : middle[0] + 2 * reach]
        return part / np.linalg.norm(part)

    def accuracy(side):
        rows = np.array([read(index, side).ravel() for index in range(900)])
        nearest = (rows[700:] @ rows[:700].T).argmax(1)
        return (answers[nearest] == answers[700:]).mean()

    assert accuracy(128) > 0.9  # a closer look: 64 pixels at 32
    assert accuracy(32) < 0.25 + 3 * (0.25 * 0.75 / 200) ** 0.5


def test_several_patches_have_different_colours_and_do_not_touch():
    task = Acuity(patches=(4, 4))
    for index in range(20):
        patches = task.problem(index)
        assert len({patch.colour for patch in patches}) == 4
        ink = (task[index].images[0] < 255).any(2)
        for patch in patches:
            x1, y1, x2, y2 = patch.box
            ink[y1:y2, x1:x2] = False
        assert not ink.any()


def test_directions_are_equally_likely():
    task = Acuity()
    counts = np.array([sum(task[i].answer == d for i in range(400)) for d in DIRECTIONS])
    assert ((counts - 100) ** 2 / 100).sum() < 16.3  # chi-squared, 99.9 % point with 3 degrees of freedom


WRONG = [
    {"diameter": 11},
    {"diameter": 100},
    {"patches": (0, 1)},
    {"patches": (1, 9)},
    {"units": 0},
    {"answers": "abca"},
]


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_arguments_are_refused(wrong):
    with pytest.raises(ValueError, match="acuity"):
        Acuity(**wrong)
