"""Shapes that move in straight lines and are reflected at the borders, and their frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

COLOURS = ((220, 40, 40), (40, 90, 220), (30, 150, 60), (240, 140, 20))
_BACKGROUND = (235, 235, 225)

CORRUPTIONS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "grey": lambda frame: np.repeat(frame.mean(axis=2, keepdims=True).astype(np.uint8), 3, axis=2),
    "invert": lambda frame: 255 - frame,
    "swap": lambda frame: frame[..., ::-1],
    "rotate": lambda frame: frame[::-1, ::-1],
    "mirror": lambda frame: frame[:, ::-1],
}
"""Changes of a whole frame, uint8 [size, size, 3] to the same: swap exchanges red and blue, rotate turns by 180."""
SYMMETRIES = ("rotate", "mirror")
"""Those that make another film of a film: where frames at one end are altered, the other frames may be so as well."""


@dataclass(frozen=True)
class Mover:
    """A square or a disc, with its place in the first frame and its velocity, as fractions of the image's side."""

    round: bool
    colour: int
    radius: float
    place: tuple[float, float]  # x, y
    velocity: tuple[float, float]  # for each frame


def draw_movers(rng: np.random.Generator, count: int, speed: float) -> tuple[Mover, ...]:
    """Draw shapes with random places and directions."""
    movers = []
    for _ in range(count):
        angle = rng.uniform(0, 2 * np.pi)
        x, y = (round(float(each), 4) for each in rng.uniform(0.2, 0.8, size=2))
        velocity = (round(float(speed * np.cos(angle)), 4), round(float(speed * np.sin(angle)), 4))
        kind = (bool(rng.integers(2)), int(rng.integers(len(COLOURS))))
        movers.append(Mover(*kind, round(float(rng.uniform(0.1, 0.16)), 4), (x, y), velocity))
    return tuple(movers)


def render_frame(movers: tuple[Mover, ...], time: float, size: int) -> np.ndarray:
    """Draw the shapes at a time in frames, uint8 [size, size, 3]; later shapes cover earlier ones."""
    frame = np.full((size, size, 3), _BACKGROUND, np.uint8)
    grid = (np.arange(size) + 0.5) / size
    for mover in movers:
        x, y = (_reflect(p + v * time, mover.radius) for p, v in zip(mover.place, mover.velocity))
        dx, dy = np.abs(grid[None, :] - x), np.abs(grid[:, None] - y)
        inside = dx**2 + dy**2 <= mover.radius**2 if mover.round else np.maximum(dx, dy) <= mover.radius
        frame[inside] = COLOURS[mover.colour]
    return frame


def _reflect(position: float, radius: float) -> float:
    """Reflect a coordinate at radius and 1 - radius."""
    span = 1 - 2 * radius
    folded = (position - radius) % (2 * span)
    return radius + (folded if folded <= span else 2 * span - folded)
