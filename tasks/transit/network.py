"""Transit networks on a grid: random lines, fewest transfers, and the drawn map."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from PIL import Image, ImageDraw, ImageFont

COLOURS: Mapping[str, tuple[int, int, int]] = {
    "red": (220, 40, 40),
    "blue": (40, 90, 220),
    "green": (30, 150, 60),
    "orange": (240, 140, 20),
    "purple": (140, 60, 170),
    "brown": (120, 80, 40),
}
LETTERS = "ABCDEFHJKLMNPRTUVXYZ"
"""Names of stations, without letters that look like others at a small size."""
_SCALE = 4  # the map is drawn this much larger and averaged down, so that slanted edges and letters are smooth
Point = tuple[int, int]
"""Row and column of the grid."""
Leg = tuple[str, str, str]
"""Line, station where it is entered, station where it is left."""


@dataclass(frozen=True)
class Network:
    """Lines with their stations in order, and the place of every station."""

    lines: tuple[tuple[str, str], ...]  # colour, and the letters of the stations along the line
    places: tuple[tuple[str, Point], ...]

    def serving(self, station: str) -> list[str]:
        """Return the lines that stop at a station."""
        return [line for line, stations in self.lines if station in stations]

    def route(self, origin: str, target: str) -> list[Leg] | None:
        """Return the legs of a route with the fewest lines; None if there is none. A search in breadth."""
        routes: dict[str, list[Leg]] = {origin: []}
        layer = [origin]
        while layer and target not in routes:
            reached = []
            for station in layer:
                for line, stations in self.lines:
                    for other in stations if station in stations else "":
                        if other not in routes:
                            routes[other] = [*routes[station], (line, station, other)]
                            reached.append(other)
            layer = reached
        return routes.get(target)

    def accepts(self, legs: list[Leg], origin: str, target: str) -> bool:
        """Return whether the legs chain from the origin to the target, each along a line that has both its ends."""
        along = dict(self.lines)
        ends = [origin, *(leg[2] for leg in legs)]
        return (
            bool(legs)
            and ends[-1] == target
            and all(leg[1] == end for leg, end in zip(legs, ends))
            and all(a != b and {a, b} <= set(along.get(line, "")) for line, a, b in legs)
        )

    def render(self, size: int, grid: int) -> np.ndarray:
        """Draw lines, stations and their letters, uint8 [size, size, 3]."""
        side = size * _SCALE
        step = side / grid
        spots = {name: ((c + 0.5) * step, (r + 0.5) * step) for name, (r, c) in self.places}
        image = Image.new("RGB", (side, side), "white")
        pen = ImageDraw.Draw(image)
        for line, stations in self.lines:
            pen.line([spots[station] for station in stations], fill=COLOURS[line], width=round(step * 0.2))
        font, radius = ImageFont.load_default(step * 0.6), step * 0.33
        for name, (x, y) in spots.items():
            box = (x - radius, y - radius, x + radius, y + radius)
            pen.ellipse(box, fill="white", outline="black", width=max(1, round(step * 0.05)))
            pen.text((x, y), name, fill="black", font=font, anchor="mm")
        return np.asarray(image.resize((size, size), Image.Resampling.BOX))


def draw_network(rng: np.random.Generator, grid: int, lines: int, stations: int) -> Network | None:
    """Draw lines as walks on a grid; None if a walk is stuck or the lines are not connected.

    Each line visits a point once, no two share a piece of track, and every line after the first crosses an earlier one.
    """
    tracks: list[list[Point]] = []
    rails: set[frozenset[Point]] = set()
    for _ in range(lines):
        track = _draw_track(rng, grid, stations, rails)
        if track is None or (tracks and not set(track) & {point for other in tracks for point in other}):
            return None
        rails |= {frozenset(pair) for pair in pairwise(track)}
        tracks.append(track)
    points = sorted({point for track in tracks for point in track})
    if len(points) > len(LETTERS):
        return None
    names = dict(zip(points, (LETTERS[i] for i in rng.permutation(len(LETTERS))[: len(points)].tolist())))
    colours = [tuple(COLOURS)[i] for i in rng.permutation(len(COLOURS))[:lines].tolist()]
    stops = tuple((colour, "".join(names[point] for point in track)) for colour, track in zip(colours, tracks))
    return Network(stops, tuple((names[point], point) for point in points))


def _draw_track(rng: np.random.Generator, grid: int, stations: int, rails: set[frozenset[Point]]) -> list[Point] | None:
    """Draw a walk that goes straight ahead two times of three where it can."""
    track = [(int(rng.integers(grid)), int(rng.integers(grid)))]
    ahead: Point | None = None
    while len(track) < stations:
        row, column = track[-1]
        free = [
            (dr, dc)
            for dr, dc in ((0, 1), (1, 0), (0, -1), (-1, 0))
            if 0 <= row + dr < grid and 0 <= column + dc < grid and (row + dr, column + dc) not in track
            if frozenset((track[-1], (row + dr, column + dc))) not in rails
        ]
        if not free:
            return None
        if ahead not in free or rng.random() > 2 / 3:
            ahead = free[int(rng.integers(len(free)))]
        track.append((row + ahead[0], column + ahead[1]))
    return track
