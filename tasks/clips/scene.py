"""Shapes that move in straight lines and are reflected at the borders, and their frames."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

COLOURS = ((220, 40, 40), (40, 90, 220), (30, 150, 60), (240, 140, 20))
_BACKGROUND = (235, 235, 225)


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


SHAPES = ("circle", "square", "triangle")
_GAP = 2  # two frames of a shape lie at least so far apart


@dataclass(frozen=True)
class Paste:
    """A black shape in one frame, with its place and half of its side as fractions of the image's side."""

    shape: str
    time: int
    place: tuple[float, float]  # x, y of the middle
    radius: float = 0.12


def draw_pastes(rng: np.random.Generator, frames: int) -> tuple[tuple[Paste, ...], tuple[int, ...]]:
    """Draw for each shape up to three frames with one of it, and return how many of each shape there are.

    No two shapes of a frame overlap, because their middles are in different quarters.
    """
    free = {time: [(x, y) for x in (0.25, 0.75) for y in (0.25, 0.75)] for time in range(frames)}
    pastes: list[Paste] = []
    counts = []
    for shape in SHAPES:
        times = [time for time in range(0, frames, _GAP) if free[time]]
        chosen = [times[i] for i in rng.permutation(len(times))[: int(rng.integers(0, 3, endpoint=True))].tolist()]
        for time in chosen:
            x, y = free[time].pop(int(rng.integers(len(free[time]))))
            shift = np.round(rng.uniform(-0.1, 0.1, size=2), 4)
            pastes.append(Paste(shape, time, (x + float(shift[0]), y + float(shift[1]))))
        counts.append(len(chosen))
    return tuple(pastes), tuple(counts)


def paste_shapes(frame: np.ndarray, pastes: tuple[Paste, ...], time: int) -> np.ndarray:
    """Draw the shapes that are pasted into a frame."""
    frame, size = frame.copy(), len(frame)
    grid = (np.arange(size) + 0.5) / size
    for paste in (each for each in pastes if each.time == time):
        dx, dy = np.abs(grid[None, :] - paste.place[0]), grid[:, None] - paste.place[1]
        inside = {
            "circle": dx**2 + dy**2 <= paste.radius**2,
            "square": np.maximum(dx, np.abs(dy)) <= paste.radius,
            "triangle": (dx <= (dy + paste.radius) / 2) & (np.abs(dy) <= paste.radius),
        }[paste.shape]
        frame[inside] = 0
    return frame
