"""SVG drawings: golden pixels, and answers that are not plain SVG."""

import time

import numpy as np
import pytest

from tasks.drawings import SVGDrawings
from tasks.drawings.svg import find_svg, is_plain, render_svg
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


USUAL = {
    "a fence": lambda svg: f"```\n{svg}\n```",
    "a fence with a language": lambda svg: f"Here it is:\n```svg\n{svg}\n```\n",
    "several lines": lambda svg: svg.replace("><", ">\n  <"),
    "CRLF": lambda svg: svg.replace("><", ">\r\n<"),
    "a declaration": lambda svg: f'<?xml version="1.0" encoding="UTF-8"?>\n{svg}',
    "a declaration on the same line": lambda svg: f"<?xml version='1.0'?>{svg}",
    "a document type": lambda svg: f'<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "svg11.dtd">\n{svg}',
    "a style": lambda svg: svg.replace('fill="', 'style="stroke: none; fill:'),
    "a title": lambda svg: svg.replace('8 8">', '8 8"><title>a drawing, 8 x 8</title>'),
    "a description": lambda svg: svg.replace('8 8">', '8 8"><desc>shapes</desc>'),
    "metadata": lambda svg: svg.replace('8 8">', '8 8"><metadata>drawn by hand</metadata>'),
    "empty definitions": lambda svg: svg.replace('8 8">', '8 8"><defs/>'),
    "a role": lambda svg: svg.replace("<svg", '<svg role="img" aria-label="a drawing"'),
    "a comment": lambda svg: svg.replace('8 8">', '8 8"><!-- the shape -->'),
    "a namespace": lambda svg: svg.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg" version="1.1"'),
    "a size": lambda svg: svg.replace("<svg", '<svg width="64" height="64px"'),
    "a group": lambda svg: svg.replace('8 8">', '8 8"><g id="shapes" fill-opacity="1">').replace(
        "</svg>", "</g></svg>"
    ),
    "a shift": lambda svg: svg.replace('8 8">', '8 8"><g transform="translate(0, 0)">').replace("</svg>", "</g></svg>"),
    "end tags": lambda svg: svg.replace('"/></svg>', '"></rect></svg>') if "<rect" in svg else svg,
    "single quotes": lambda svg: svg.replace('"', "'"),
    "blank lines": lambda svg: f"\n\n{svg}\n\n",
    "thoughts": lambda svg: f"<think>A shape.</think>\n{svg}",
    "reasons before it": lambda svg: f"There is one shape.\n{svg}",
}
"""Usual forms of a right answer."""


@pytest.mark.parametrize("form", USUAL)
def test_usual_forms_are_exact(form):
    task = SVGDrawings(shapes=(1, 1))
    for index in range(4):
        right = task.demonstrate(index)
        assert task.score(reply(task[index], USUAL[form](right)))["exact"] == 1, USUAL[form](right)


@pytest.mark.parametrize(
    "answer",
    [
        *(f"{SVG}\nno", f"no {SVG}", f"<!-- {SVG} -->", f"<!--\n{SVG}\n-->", f"{SVG}<|im_end|>"),
        SVG.replace('fill="red"', 'style="fill:url(#a)"'),
        SVG.replace('fill="red"', 'style="fill:red;background:blue"'),
        '<!DOCTYPE svg [<!ENTITY a "aaaa">]>' + SVG,
        "<!DOCTYPE svg>" * 2 + SVG,
        *(SVG.replace('width="2"', f'width="{number}"') for number in ("1e5", "10001", "1e38", "1e-30", "9" * 400)),
    ],
)
def test_what_is_no_plain_svg_at_the_end_is_not_found(answer):
    assert find_svg(answer, 8) is None


BOMBS = {
    "arcs": '<svg viewBox="0 0 8 8">' + '<path d="M0 0A1 1 0 0 1 1e30 1e30"/>' * 23 + "</svg>",
    "a circle": '<svg viewBox="0 0 8 8"><circle r="1e38"/></svg>',
    "nested scales": '<svg viewBox="0 0 8 8">' + '<g transform="scale(9999)">' * 9 + '<circle r="9" stroke="red"/>'
    + "</g>" * 9 + "</svg>",
    "a scaled arc": '<svg viewBox="0 0 8 8"><g transform="scale(9999)"><g transform="scale(9999)">'
    '<path stroke="red" d="M0 0A.001 .001 0 0 1 9999 9999"/></g></g></svg>',
    "steps": '<svg viewBox="0 0 .01 .01"><path stroke="red" d="M0 0' + "a9 1 0 0 1 9999 1" * 90 + '"/></svg>',
}  # fmt: skip


@pytest.mark.parametrize("kind", BOMBS)
def test_drawings_without_an_end_are_ended(kind):
    task = SVGDrawings()
    start = time.monotonic()
    episode = reply(task[0], BOMBS[kind])
    assert task.score(episode)["exact"] == 0 and episode.info["outcome"] in ("unreadable", "drawn", "timed_out", "died")
    assert time.monotonic() - start < 20  # a second of processor time


@pytest.mark.parametrize("colour", ["blac", "blu", "#12", "#ggg", "reddd", "rgb(1,2", "var(--x)", "black red", "7", ""])
@pytest.mark.parametrize("where", ['fill="{}"', 'stroke="{}"', 'style="fill:{}"'])
def test_an_unknown_colour_is_refused_and_not_painted_black(where, colour):
    svg = f'<svg viewBox="0 0 8 8"><rect width="8" height="8" {where}/></svg>'
    assert find_svg(svg.format(colour), 10) is None
    known = ("black", "Red", "#f00", "#ff0000", "#ff000080", "rgb(255, 0, 0)", "rgb(100%,0%,0%)", "none", " lightblue ")
    assert None not in [find_svg(svg.format(each), 10) for each in (*known, "hsl(0,100%,50%)")]


def test_the_expert_needs_an_element_more_than_there_are_shapes():
    with pytest.raises(ValueError, match="2 shapes need at least longest=3, got 2"):
        SVGDrawings(shapes=(1, 2), longest=2)
    task = SVGDrawings(shapes=(2, 2), longest=3)
    assert [task.score(reply(task[i], task.demonstrate(i)))["exact"] for i in range(3)] == [1.0] * 3
