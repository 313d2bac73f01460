"""Drawings: golden pixels and scores, disjoint splits, and programs that only look right."""

import numpy as np
import pytest

from mmrl.core.types import Prompt
from tasks.drawings import Drawings
from tasks.drawings.program import COLOURS, ShapeCommand, read_program, render, write_program
from tasks.drawings.verify import edge_map, length_score, pixel_score, verify
from tests.tasks.replies import reply

TASK = Drawings(longest=4, size=16)
PROGRAM = "rect 1 1 5 4 red; circle 4 4 2 blue"
IMAGE = render(read_program(PROGRAM, 8, 4), 8, 16)


def test_shapes_cover_the_pixels_whose_centres_they_hold():
    image = render([ShapeCommand("rect", (0, 0, 2, 1), "red"), ShapeCommand("circle", (3, 3, 1), "blue")], 4, 4)
    codes = {COLOURS["red"]: "r", COLOURS["blue"]: "b", (255, 255, 255): "."}
    assert ["".join(codes[tuple(pixel)] for pixel in row) for row in image.tolist()] == ["rr..", "....", "..bb", "..bb"]
    covered = render([ShapeCommand("rect", (0, 0, 4, 4), "red"), ShapeCommand("rect", (0, 0, 4, 4), "blue")], 4, 8)
    assert (covered == COLOURS["blue"]).all()


def test_pixel_score_of_the_paper():
    image, drawn = np.array([[1, 0], [0.5, 0.25]]), np.array([[0.8, 0.1], [0.5, 0.25]])
    assert pixel_score(image, drawn) == pytest.approx(0.989838, abs=1e-6)
    assert pixel_score(image, image) == 1
    assert pixel_score(image, np.ones((2, 2))) == pytest.approx(0)
    assert pixel_score(image, -image) == -1


def test_edges_are_those_of_the_outline_and_not_of_the_colour():
    square, moved = np.full((32, 32), 255.0), np.full((32, 32), 255.0)
    square[8:24, 8:24], moved[8:24, 12:28] = 0, 0
    pale = np.where(square == 0, 180.0, 255.0)
    outline = edge_map(square)
    assert outline[16, 8] > 0.3 > 0.1 > outline[16, 16] and outline.max() < 1
    assert (edge_map(np.full((32, 32), 9.0)) == 0).all()  # nothing is drawn
    assert pixel_score(outline, edge_map(pale)) == pytest.approx(1)
    assert pixel_score(outline, edge_map(moved)) < 0.7
    # 255 (1 + 2 + 1) is the gradient of a step by Sobel's weights; 12 grey levels give 48, which is below 50
    assert (edge_map(np.where(square == 0, 243.0, 255.0)) == 0).all()


@pytest.mark.parametrize(("characters", "score"), [(40, 1), (50, 1), (100, 0.75), (150, 0), (200, -1.25)])
def test_length_score_of_the_paper(characters, score):
    assert length_score(characters, 100) == pytest.approx(score)


def test_programs_are_written_as_they_are_read():
    shapes = read_program(PROGRAM, 8, 4)
    assert shapes == [ShapeCommand("rect", (1, 1, 5, 4), "red"), ShapeCommand("circle", (4, 4, 2), "blue")]
    assert write_program(shapes) == PROGRAM


@pytest.mark.parametrize(
    "program",
    [
        *("", "rect", "rect 1 1 5 red", "circle 4 4 2 2 blue", "rect 5 1 1 4 red", "rect 1 1 1 4 red"),
        *("rect 1 1 9 4 red", "circle 4 4 0 blue", "circle 4 4 9 blue", "circle -1 4 2 blue", "circle 1.5 4 2 blue"),
        *("rect 1 1 5 4 pink", "rect 1 1 5 4 red;circle 4 4 2 blue", "rect 1 1 5 4 red; ", "circle 9999 4 2 blue"),
        *("; ".join(["rect 1 1 5 4 red"] * 5), "__import__('os')", "<svg/>", "rect １ 1 5 4 red", PROGRAM + ";" * 9999),
    ],
)
def test_programs_that_cannot_be_read_score_nothing(program):
    assert TASK.draw_answer(program).image is None
    assert set(verify(None, IMAGE, len(program), len(PROGRAM)).values()) == {0.0}


def test_scores_of_right_close_and_long_programs():
    def score(answer):
        return TASK.verify(answer, Prompt("0", (), images=(IMAGE,), answer=PROGRAM))

    assert score(f"I see two shapes.\n{PROGRAM}") == dict.fromkeys(
        ("exact", "pixels", "edges", "ssim", "length", "format"), 1
    )
    close, blank = score("rect 1 1 5 4 red; circle 4 4 1 blue"), score("circle 8 8 1 yellow")
    assert close["exact"] == 0 and 1 > close["pixels"] > 0.3 > blank["pixels"] and close["ssim"] > blank["ssim"]
    padded = score("; ".join(["circle 4 4 1 blue"] * 2 + [PROGRAM]))
    assert padded["exact"] == 1 and padded["length"] == 0


def test_every_shape_shows_and_the_expert_is_exact():
    task = Drawings(shapes=(2, 4))
    for index in range(30):
        prompt, shapes = task[index], task.problem(index)
        assert set(task.score(reply(prompt, task.demonstrate(index))).values()) == {1.0}
        for i in range(len(shapes)):
            assert (render(shapes[:i] + shapes[i + 1 :], 8, 64) != prompt.images[0]).any()


def test_no_image_is_in_both_splits():
    task = Drawings(shapes=(1, 1), units=4, size=8)
    images = [{task.on(s)[i].images[0].tobytes() for i in range(300)} for s in ("train", "held_out")]
    assert not images[0] & images[1]


@pytest.mark.parametrize("options", [{"shapes": (0, 1)}, {"shapes": (1, 99)}, {"units": 2}, {"size": 4}])
def test_arguments_without_problems_are_refused(options):
    with pytest.raises(ValueError, match="drawings"):
        Drawings(**options)
