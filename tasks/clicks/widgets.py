"""Widgets of a window as pixels: each fills its box, so that the box of its pixels is the box to click."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Box = tuple[int, int, int, int]

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (215, 50, 50),
    "green": (40, 150, 70),
    "blue": (50, 90, 215),
    "orange": (235, 140, 30),
    "purple": (140, 60, 170),
}
THEMES: dict[str, tuple[tuple[int, int, int], tuple[int, int, int]]] = {
    "light": ((244, 244, 246), (205, 210, 220)),
    "dark": ((40, 42, 48), (70, 74, 84)),
}
"""Colours of the window and of its title bar."""


@dataclass(frozen=True)
class Widget:
    """A widget of a kind and a colour, and its box in pixels: edges x1, y1, x2, y2."""

    kind: str
    colour: str
    box: Box


def _draw_button(area: np.ndarray, ink: np.ndarray) -> None:
    area[:] = ink
    height, width = area.shape[:2]
    area[height // 2, width // 4 : -(width // 4)] = 255  # its caption


def _draw_field(area: np.ndarray, ink: np.ndarray) -> None:
    _draw_frame(area, ink)
    area[2:-2, 2] = ink  # the cursor


def _draw_checkbox(area: np.ndarray, ink: np.ndarray) -> None:
    _draw_frame(area, ink)
    steps = np.arange(2, min(area.shape[:2]) - 2)
    area[steps, steps] = area[steps, steps[::-1]] = ink


def _draw_radio(area: np.ndarray, ink: np.ndarray) -> None:
    distance = _measure_distance(area)
    area[distance <= 1] = ink
    area[(distance <= 0.7) & (distance > 0.35)] = 255


def _draw_slider(area: np.ndarray, ink: np.ndarray) -> None:
    height, width = area.shape[:2]
    area[height // 2] = ink
    third = max(2, height // 2)
    area[:, width // 3 : width // 3 + third] = ink  # the handle


def _draw_toggle(area: np.ndarray, ink: np.ndarray) -> None:
    height, width = area.shape[:2]
    y, x = np.ogrid[:height, :width]
    middle = (height - 1) / 2
    nearest = x.clip(middle, width - 1 - middle)
    area[np.hypot(y - middle, x - nearest) <= middle + 0.25] = ink
    area[np.hypot(y - middle, x - (width - 1 - middle)) <= middle - 1] = 255  # the knob


def _draw_frame(area: np.ndarray, ink: np.ndarray) -> None:
    area[:] = 255
    area[[0, -1]] = ink
    area[:, [0, -1]] = ink


def _measure_distance(area: np.ndarray) -> np.ndarray:
    """Distance of pixels from the middle, 1 at the nearest ones of the upper edge, [height, width]."""
    y, x = (np.linspace(-1, 1, size) for size in area.shape[:2])
    distance = np.hypot(y[:, None], x[None, :])
    return distance / (distance[0].min() + 1e-9)


_DRAW: dict[str, tuple[float, Callable[[np.ndarray, np.ndarray], None]]] = {
    "button": (2.5, _draw_button),
    "field": (4.0, _draw_field),
    "checkbox": (1.0, _draw_checkbox),
    "radio": (1.0, _draw_radio),
    "slider": (4.0, _draw_slider),
    "toggle": (2.0, _draw_toggle),
}
KINDS = tuple(_DRAW)


def aspect(kind: str) -> float:
    """Width of a kind of widget divided by its height."""
    return _DRAW[kind][0]


def draw_widget(image: np.ndarray, widget: Widget) -> None:
    """Draw a widget into an image, uint8 [height, width, 3]."""
    x1, y1, x2, y2 = widget.box
    _DRAW[widget.kind][1](image[y1:y2, x1:x2], np.array(COLOURS[widget.colour], np.uint8))
