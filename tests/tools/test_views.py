"""Tools that show a part of the image."""

import numpy as np
import pytest

from mmrl.core.types import Prompt
from mmrl.tools.base import BadArguments
from mmrl.tools.views import Crop, Zoom

IMAGE = np.arange(40 * 80 * 3, dtype=np.uint32).astype(np.uint8).reshape(40, 80, 3)
PROMPT = Prompt(key="p", messages=({"role": "user", "content": "?"},), images=(IMAGE,), answer=None)


def shown(tool, where):
    (image,) = tool.start(PROMPT).run(where).images
    return image


def test_a_crop_is_the_box_at_full_resolution():
    assert (shown(Crop(units=10), "1 2 4 10") == IMAGE[8:40, 8:32]).all()
    assert shown(Crop(units=1000), "0 0 1 1").shape == (1, 1, 3)  # never empty
    for wrong in ("1 2 4", "4 2 1 9", "1 2 4 11", "a b c d", ""):
        with pytest.raises(BadArguments):
            shown(Crop(units=10), wrong)


def test_a_zoom_has_the_cell_in_its_middle_and_stays_inside():
    assert (shown(Zoom(units=8, factor=4), "3 4") == IMAGE[18:28, 25:45]).all()
    assert (shown(Zoom(units=8, factor=4), "0 7") == IMAGE[30:40, 0:20]).all()
    for wrong in ("8 0", "1", "1 2 3", "-1 0", "1.5 2"):
        with pytest.raises(BadArguments):
            shown(Zoom(units=8), wrong)


def test_every_episode_has_its_own_image_and_one_is_needed():
    tool = Zoom(units=2, factor=2)
    other = Prompt(key="q", messages=PROMPT.messages, images=(255 - IMAGE,), answer=None)
    one, two = tool.start(PROMPT), tool.start(other)
    assert (one.run("0 0").images[0] == 255 - two.run("0 0").images[0]).all() and tool.prompt is None
    alone = tool.start(Prompt(key="r", messages=PROMPT.messages, answer=None))
    with pytest.raises(ValueError, match="has no image, and no other tool shows one"):
        alone.meet({"[": alone})


def test_wrong_sizes_are_refused():
    with pytest.raises(ValueError, match="units"):
        Crop(units=0)
    with pytest.raises(ValueError, match="factor"):
        Zoom(factor=0.5)


def test_the_schema_is_what_chat_models_read():
    (argument,) = Zoom().schema_as("zoom")["function"]["parameters"]["properties"].items()
    assert argument[0] == "where" and argument[1]["type"] == "string"
