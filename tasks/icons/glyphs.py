"""Symbols of the font DejaVu Sans, which matplotlib ships under the open licence of Bitstream Vera."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

ICONS = {
    **{"sun": "\u2600", "cloud": "\u2601", "umbrella": "\u2602", "snowman": "\u2603", "star": "\u2605"},
    **{"telephone": "\u260e", "coffee": "\u2615", "skull": "\u2620", "radiation": "\u2622", "biohazard": "\u2623"},
    **{"moon": "\u263e", "face": "\u263a", "spade": "\u2660", "heart": "\u2665", "club": "\u2663", "note": "\u266b"},
    **{"flag": "\u2691", "anchor": "\u2693", "swords": "\u2694", "scales": "\u2696", "gear": "\u2699"},
    **{"lightning": "\u26a1", "plane": "\u2708", "letter": "\u2709", "scissors": "\u2702", "pencil": "\u270f"},
    **{"snowflake": "\u2744", "recycling": "\u267b", "die": "\u2684", "king": "\u265a", "knight": "\u265e"},
    **{"rook": "\u265c", "arrow": "\u27a4", "cross": "\u271a", "tick": "\u2714", "peace": "\u262e"},
}
"""Name and character of each symbol."""


@lru_cache(maxsize=8)
def _font(height: int) -> ImageFont.FreeTypeFont:
    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"
    return ImageFont.truetype(str(path), height)


@lru_cache(maxsize=1024)
def draw_icon(name: str, side: int) -> np.ndarray:
    """Draw a symbol in the middle of a square as the ink's share of each pixel, uint8 [side, side]."""
    image = Image.new("L", (side, side), 0)
    pen, font = ImageDraw.Draw(image), _font(round(side * 0.85))
    x0, y0, x1, y1 = pen.textbbox((0, 0), ICONS[name], font=font)
    pen.text(((side - x0 - x1) / 2, (side - y0 - y1) / 2), ICONS[name], fill=255, font=font)
    return np.asarray(image)
