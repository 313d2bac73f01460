"""Icons: the font has every symbol, golden answers, disjoint splits, and answers that only look right."""

import numpy as np
import pytest

from tasks.icons import Icons
from tasks.icons.glyphs import ICONS, draw_icon
from tasks.icons.task import COLOURS, verify
from tests.tasks.replies import reply


def test_the_font_has_every_symbol_and_no_two_look_alike():
    missing = "\U0010ffff"  # drawn as the box of a character that the font does not have
    ICONS["missing"] = missing
    try:
        drawn = {name: draw_icon(name, 32).astype(float) for name in ICONS}
    finally:
        del ICONS["missing"]
    names = list(drawn)
    for i, name in enumerate(names):
        assert drawn[name].mean() > 8
        for other in names[:i]:
            assert np.abs(drawn[name] - drawn[other]).mean() > 8, (name, other)


def test_the_asked_symbol_is_in_its_cell():
    task = Icons(side=3, size=72)
    for index in range(40):
        prompt, grid = task[index], task.problem(index)
        top, left = (24 * place for place in divmod(grid.cell, 3))
        ink = 255 - prompt.images[0][top : top + 24, left : left + 24].astype(float).min(2)
        wanted = draw_icon(grid.names[grid.cell], 24).astype(float)
        assert np.corrcoef(ink.ravel(), wanted.ravel())[0, 1] > 0.99
        asked = prompt.messages[0]["content"][1]["text"]
        assert (str(grid.cell + 1) if grid.kind == "name" else grid.names[grid.cell]) in asked
        assert prompt.answer == (grid.names[grid.cell] if grid.kind == "name" else str(grid.cell + 1))
        assert set(task.score(reply(prompt, task.demonstrate(index))).values()) == {1.0}
    assert {task.problem(i).kind for i in range(40)} == {"find", "name"}
    assert len(set(COLOURS)) == 4


@pytest.mark.parametrize(
    ("text", "exact", "well_formed"),
    [
        ("sun", 1, 1),
        ("It is round.\nsun", 1, 1),
        ("moon", 0, 1),
        ("sun moon", 0, 0),
        ("Sun", 0, 0),
        ("\u2600", 0, 0),
        ("", 0, 0),
    ],
)
def test_verify(text, exact, well_formed):
    assert verify(text, "sun", ("sun", "moon")) == {"exact": exact, "format": well_formed}


def test_no_grid_is_in_both_splits():
    task = Icons(icons=["sun", "moon", "star", "heart", "gear"])
    grids = [{task.on(s).problem(i).names for i in range(300)} for s in ("train", "held_out")]
    assert not grids[0] & grids[1] and len(grids[0] | grids[1]) > 100  # of 120


@pytest.mark.parametrize(
    "options",
    [{"kinds": ["?"]}, {"icons": ["?"]}, {"icons": ["sun"]}, {"side": 10}, {"size": 8}, {"icons": ["sun"] * 9}],
)
def test_arguments_without_problems_are_refused(options):
    with pytest.raises(ValueError, match="icons"):
        Icons(**options)
