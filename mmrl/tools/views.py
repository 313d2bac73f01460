"""Tools that show a part of an image at its own resolution."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Self

import numpy as np

from mmrl.core.errors import check_at_least
from mmrl.core.types import Prompt
from mmrl.rewards.boxes import parse_box, parse_numbers
from mmrl.tools.base import BadArguments, ImageSource, Tool, ToolError, ToolOutput


class NoImage(ToolError):
    """No image has been shown yet."""


class View(Tool):
    """Base class of tools that show a part of the prompt's first image.

    Beside a tool that shows images, such as a search over pages, it is a part of the last one that was shown.

    Coordinates are whole numbers from 0 to `units` across the image, x to the right and y down. The policy's processor
    resizes the part as it resizes the image, so that details of the part keep more pixels.

    Args:
        units: number of units across the image.
    """

    def __init__(self, units: int = 1000):
        check_at_least(1, f"{type(self).__name__}:", units=units)
        self.units = units
        self.prompt: Prompt | None = None
        self.source: ImageSource | None = None

    def start(self, prompt: Prompt) -> Self:
        view = type(self).__new__(type(self))
        view.__dict__ = {**vars(self), "prompt": prompt}
        return view

    def meet(self, tools: Mapping[str, Tool]) -> None:
        self.source = next((tool for tool in tools.values() if isinstance(tool, ImageSource)), None)
        if self.source is None and self.prompt is not None and not self.prompt.images:
            raise ValueError(
                f"{type(self).__name__} shows a part of the image, but {self.prompt.key!r} has no image, and no other "
                "tool shows one"
            )

    @property
    def image(self) -> np.ndarray:
        """The image that a part is shown of, uint8 [H, W, 3]. Raises a NoImage before the first one is shown."""
        assert self.prompt is not None, "start() gives the tool its prompt"
        if self.source is None:
            return self.prompt.images[0]
        if self.source.shown is None:
            raise NoImage("no image has been shown yet")
        return self.source.shown

    def cut(self, left: int, top: int, right: int, bottom: int) -> ToolOutput:
        """Cut out the pixels of a box."""
        return ToolOutput(images=(self.image[top:bottom, left:right].copy(),))

    @abstractmethod
    def run(self, where: str) -> ToolOutput:
        """Show a part of the image."""


class Crop(View):
    """Shows the box that the policy names, as in VRAG-RL.

    Source: Wang et al., "VRAG-RL", 2025, arXiv:2505.22019, section 3.2.
    """

    def run(self, where: str) -> ToolOutput:
        """
        Show a box of the image at its full resolution.

        Args:
            where: the box as x1 y1 x2 y2, for example 100 250 300 400.
        """
        box = parse_box(where, self.units)
        if box is None:
            raise BadArguments(f"write a box as x1 y1 x2 y2, with whole numbers from 0 to {self.units}")
        height, width = self.image.shape[:2]
        x1, x2 = (edge * width // self.units for edge in box[0::2])
        y1, y2 = (edge * height // self.units for edge in box[1::2])
        return self.cut(x1, y1, max(x2, x1 + 1), max(y2, y1 + 1))


class Zoom(View):
    """Shows the surroundings of the cell that the policy names, `factor` times larger than in the whole image.

    Args:
        units: number of cells across the image.
        factor: side of the image divided by the side of the part.
    """

    def __init__(self, units: int = 8, factor: float = 4.0):
        super().__init__(units)
        check_at_least(1, "Zoom:", factor=factor)
        self.factor = factor

    def run(self, where: str) -> ToolOutput:
        """
        Show the surroundings of a cell of the image, larger.

        Args:
            where: column and row of the cell, counted from 0, for example 2 5.
        """
        cell = parse_numbers(where, 2, self.units - 1)
        if cell is None:
            raise BadArguments(f"write column and row, whole numbers from 0 to {self.units - 1}")
        height, width = self.image.shape[:2]
        starts, sides = [], []
        for number, size in zip(cell, (width, height)):
            side = max(1, round(size / self.factor))
            middle = (number + 0.5) * size / self.units
            starts.append(min(max(round(middle - side / 2), 0), size - side))
            sides.append(side)
        return self.cut(starts[0], starts[1], starts[0] + sides[0], starts[1] + sides[1])
