"""SVG drawings: golden pixels, and answers that are not plain SVG."""

import numpy as np
import pytest

from tasks.drawings import SVGDrawings
from tasks.drawings.svg import is_plain, render_svg
from tests.tasks.replies import reply

pytest.importorskip("resvg_py")
SVG = '<svg viewBox="0 0 4 4"><rect x="0" y="0" width="2" height="1" fill="red"/></svg>'


def test_pixels_are_those_of_the_shapes():
    image = render_svg(SVG, 4)
    white, red = [255, 255, 255], [255, 0, 0]
    assert image.tolist() == [[red, red, white, white], *[[white] * 4] * 3]


def test_other_ways_to_draw_the_same_image_are_right():
    task = SVGDrawings(shapes=(1, 1), units=4, size=32)
    index = next(i for i in range(20) if task.problem(i)[0].kind == "rect")
    prompt, shape = task[index], task.problem(index)[0]
    x1, y1, x2, y2 = shape.numbers
    path = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 4 4"><g fill="{shape.colour}">'
    path += f'<path d="M{x1} {y1} H{x2} V{y2} H{x1} Z"/></g></svg>'
    scores = task.score(reply(prompt, path))
    assert scores["exact"] == scores["pixels"] == scores["ssim"] == scores["format"] == 1 and scores["length"] < 1
    wrong = task.score(reply(prompt, '<svg viewBox="0 0 4 4"><circle cx="2" cy="2" r="1" fill="red"/></svg>'))
    assert wrong["exact"] == 0 and wrong["format"] == 1 and wrong["pixels"] < 1


@pytest.mark.parametrize(
    "answer",
    [
        *("", "<svg>", "svg", SVG + SVG, SVG[:-1], f"<div>{SVG}</div>", SVG.replace("rect", "script")),
        SVG.replace("<rect", '<image href="/etc/hostname"/><rect'),
        SVG.replace("<rect", '<use href="#a"/><rect'),
        SVG.replace("<rect", "<text>4</text><rect"),
        SVG.replace("<rect", "<style>rect {fill: blue}</style><rect"),
        SVG.replace("red", "url(#a)"),
        SVG.replace("fill=", "onclick=") + "",
        SVG.replace("<rect", "words<rect"),
        '<!DOCTYPE s [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>' + SVG,
        f"<?xml version='1.0'?>{SVG}",
        "<svg>" + "<g>" * 9 + "</g>" * 9 + "</svg>",
        SVG + " " * 9999,
    ],
)
def test_anything_but_plain_svg_is_refused(answer):
    assert not is_plain(answer, 8)


@pytest.mark.parametrize("size", ['viewBox="0 0 4 8"', 'width="0" height="0"'])
def test_svg_without_a_square_image_scores_nothing(size):
    task = SVGDrawings(units=4, size=32)
    assert set(task.score(reply(task[0], f"<svg {size}><rect/></svg>")).values()) == {0.0}


def test_the_expert_is_exact_and_no_image_is_in_both_splits():
    task = SVGDrawings(shapes=(1, 3))
    images = []
    for split in ("train", "held_out"):
        part = task.on(split)
        prompts = [part[i] for i in range(20)]
        images.append({prompt.images[0].tobytes() for prompt in prompts})
        for i, prompt in enumerate(prompts):
            assert set(part.score(reply(prompt, part.demonstrate(i))).values()) == {1.0}
    assert not images[0] & images[1]
    np.testing.assert_array_equal(task[0].images[0], task[0].images[0])
