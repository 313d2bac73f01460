"""Object-centric states: objects with place, size and motion, found in a picture by their colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import ndimage

Box = tuple[float, float, int, int]
"""An object in a picture: x and y of its middle from the upper left corner, width and height, pixels."""


def find_boxes(image: np.ndarray, colour: Sequence[int]) -> list[Box]:
    """Find connected regions of one colour in a picture uint8 [H, W, 3], from the upper left to the lower right.

    Pixels that touch along a side are connected.
    """
    labels, count = ndimage.label((image == np.asarray(colour, np.uint8)).all(axis=-1))
    boxes = []
    for rows, columns in ndimage.find_objects(labels, count):
        height, width = rows.stop - rows.start, columns.stop - columns.start
        boxes.append((columns.start + width / 2, rows.start + height / 2, width, height))
    return boxes


class ObjectTracker:
    """The objects of consecutive pictures, as mappings of the properties that relational rewards read.

    An object has `category`, middle `x` and `y` from the upper left corner, width `w` and height `h`, its last move
    `dx` and `dy`, its place before, `prev_x` and `prev_y`, all in pixels, and `visible`. Regions of a category are
    assigned to the nearest object of the picture before; one that no region is left for keeps its last place, without a
    move, and is not visible. Source: OCALM, 2024, arXiv:2406.16748, after OCAtari, 2023, arXiv:2306.08649 (vision
    extraction).

    Args:
        colours: colour of each category.
    """

    def __init__(self, colours: Mapping[str, Sequence[int]]):
        self.colours = dict(colours)
        self.objects: list[dict[str, Any]] = []

    def reset(self, image: np.ndarray) -> None:
        """Begin an episode: nothing has moved yet."""
        self.objects = []
        self.update(image)

    def update(self, image: np.ndarray) -> None:
        """Assign the regions of the next picture uint8 [H, W, 3]."""
        objects = []
        for category, colour in self.colours.items():
            before = [each for each in self.objects if each["category"] == category]
            objects += _assign(category, before, find_boxes(image, colour))
        self.objects = objects


def _assign(category: str, before: Sequence[Mapping[str, Any]], boxes: Sequence[Box]) -> list[dict[str, Any]]:
    """The objects of a category: those of before in their order, then new ones."""
    # pairs of an object and a region, the nearest first
    pairs = sorted(
        (abs(each["x"] - box[0]) + abs(each["y"] - box[1]), i, j)
        for i, each in enumerate(before)
        for j, box in enumerate(boxes)
    )
    region: dict[int, int] = {}
    for _, i, j in pairs:
        if i not in region and j not in region.values():
            region[i] = j
    objects = []
    for i, each in enumerate(before):
        x, y, w, h = boxes[region[i]] if i in region else (each["x"], each["y"], each["w"], each["h"])
        objects.append(_describe(category, (x, y, w, h), each["x"], each["y"], i in region))
    new = [box for j, box in enumerate(boxes) if j not in region.values()]
    return [*objects, *(_describe(category, box, box[0], box[1], True) for box in new)]


def _describe(category: str, box: Box, prev_x: float, prev_y: float, visible: bool) -> dict[str, Any]:
    x, y, w, h = box
    moved = {"dx": float(x - prev_x), "dy": float(y - prev_y), "prev_x": float(prev_x), "prev_y": float(prev_y)}
    return {"category": category, "x": float(x), "y": float(y), "w": w, "h": h, **moved, "visible": visible}
