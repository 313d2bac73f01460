"""Bars, lines, pies and receipts, drawn with Pillow."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

PALETTE = ((70, 120, 200), (230, 130, 40), (60, 160, 80), (200, 60, 60), (140, 90, 180), (120, 90, 70))
_SCALE = 2  # charts are drawn this much larger and averaged down, which smooths edges and letters


def draw_bars(names: Sequence[str], values: Sequence[int], most: int, size: int) -> np.ndarray:
    """Draw a bar for each value over a grid of whole numbers, uint8 [size, size, 3]."""
    image, pen = _draw_axes(names, most, size)
    for i, value in enumerate(values):
        x, y = _spot(i, value, len(names), most, size)
        width = _span(size) / len(names) * 0.3
        pen.rectangle((x - width, y, x + width, _spot(i, 0, len(names), most, size)[1]), fill=PALETTE[i])
    return _shrink(image, size)


def draw_line(names: Sequence[str], values: Sequence[int], most: int, size: int) -> np.ndarray:
    """Draw the values as points that a line joins, over a grid of whole numbers, uint8 [size, size, 3]."""
    image, pen = _draw_axes(names, most, size)
    spots = [_spot(i, value, len(names), most, size) for i, value in enumerate(values)]
    pen.line(spots, fill=PALETTE[0], width=2 * _SCALE)
    for x, y in spots:
        pen.ellipse((x - 2 * _SCALE, y - 2 * _SCALE, x + 2 * _SCALE, y + 2 * _SCALE), fill=PALETTE[3])
    return _shrink(image, size)


def draw_pie(names: Sequence[str], values: Sequence[int], most: int, size: int) -> np.ndarray:
    """Draw slices whose angles are the shares of the sum, each with its name and value, uint8 [size, size, 3]."""
    side = size * _SCALE
    image = Image.new("RGB", (side, side), "white")
    pen, font = ImageDraw.Draw(image), _font(side * 0.1)
    start = -90.0
    for i, value in enumerate(values):
        end = start + 360 * value / sum(values)
        pen.pieslice((1, 1, side - 2, side - 2), start, end, fill=PALETTE[i], outline="white", width=_SCALE)
        angle = np.deg2rad((start + end) / 2)
        spot = (side / 2 + 0.34 * side * np.cos(angle), side / 2 + 0.34 * side * np.sin(angle))
        pen.text(spot, f"{names[i]}{value}", fill="white", font=font, anchor="mm")
        start = end
    return _shrink(image, size)


def draw_receipt(rows: Sequence[tuple[str, str]], size: int) -> np.ndarray:
    """Draw names at the left and prices at the right, one row below the other, uint8 [size, size, 3]."""
    image = Image.new("RGB", (size, size), (250, 248, 240))
    pen = ImageDraw.Draw(image)
    step = size / (len(rows) + 0.5)
    font = _font(min(step * 0.85, size * 0.13))
    for i, (name, price) in enumerate(rows):
        y = (i + 0.75) * step
        pen.text((2, y), name, fill=(30, 30, 30), font=font, anchor="lm")
        pen.text((size - 2, y), price, fill=(30, 30, 30), font=font, anchor="rm")
    return np.asarray(image)


@lru_cache(maxsize=32)
def _font(height: float) -> Any:
    return ImageFont.load_default(height)


def _span(size: int) -> float:
    """Width of the plot in drawn pixels; names and numbers stand in the rest of the image."""
    return size * _SCALE * 0.84


def _spot(place: int, value: float, count: int, most: int, size: int) -> tuple[float, float]:
    side, span = size * _SCALE, _span(size)
    return side * 0.14 + span * (place + 0.5) / count, side * 0.03 + span * (1 - value / most)


def _draw_axes(names: Sequence[str], most: int, size: int) -> tuple[Image.Image, Any]:
    side = size * _SCALE
    image = Image.new("RGB", (side, side), "white")
    pen, font = ImageDraw.Draw(image), _font(side * 0.1)
    for value in range(most + 1):
        y = _spot(0, value, len(names), most, size)[1]
        pen.line((side * 0.14, y, side * 0.98, y), fill=(200, 200, 200) if value else (0, 0, 0))
        if value % max(1, most // 5) == 0:
            pen.text((side * 0.12, y), str(value), fill="black", font=font, anchor="rm")
    for i, name in enumerate(names):
        pen.text((_spot(i, 0, len(names), most, size)[0], side * 0.935), name, fill="black", font=font, anchor="mm")
    return image, pen


def _shrink(image: Image.Image, size: int) -> np.ndarray:
    return np.asarray(image.resize((size, size), Image.Resampling.BOX))
