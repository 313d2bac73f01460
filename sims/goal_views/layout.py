"""Layouts of a room on a grid: walls, coloured objects, and the walking distances between its cells."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from sims.goal_views.drawing import Boxes

Cell = tuple[int, int]
HEADINGS: tuple[Cell, ...] = ((0, 1), (1, 0), (0, -1), (-1, 0))
"""Steps (x, z) of the four headings; each is a quarter turn to the right of the one before."""
KINDS: dict[str, tuple[tuple[float, float, float], float]] = {
    "red": ((225.0, 45.0, 45.0), 0.9),
    "green": ((45.0, 175.0, 65.0), 0.6),
    "blue": ((55.0, 85.0, 230.0), 0.9),
    "yellow": ((240.0, 215.0, 45.0), 0.6),
    "purple": ((160.0, 60.0, 185.0), 0.9),
    "cyan": ((45.0, 200.0, 205.0), 0.6),
}
"""Colour, and height in metres, of each kind of object."""
WALL_M, WIDTH_M = 1.3, 0.7


@dataclass(frozen=True, eq=False)
class RoomLayout:
    """A square room of cells of one metre, surrounded by walls.

    Args:
        side: cells of a side.
        walls: cells of the walls inside.
        shades: brightness of each wall inside, from 0 to 255.
        objects: kind and cell of each object; no two have one kind.
    """

    side: int
    walls: tuple[Cell, ...]
    shades: tuple[float, ...]
    objects: tuple[tuple[str, Cell], ...]

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Cells of the objects, in their order."""
        return tuple(cell for _, cell in self.objects)

    def is_free(self, cell: Cell) -> bool:
        """Whether one can stand in a cell."""
        inside = 0 <= cell[0] < self.side and 0 <= cell[1] < self.side
        return inside and cell not in self.walls and cell not in self.cells

    def boxes(self) -> Boxes:
        """Objects in their order, then walls inside, then the four walls around the room."""
        corners: list[tuple[list[float], list[float]]] = []
        colours: list[tuple[float, float, float]] = []
        margin = (1 - WIDTH_M) / 2
        for kind, (x, z) in self.objects:
            colour, height = KINDS[kind]
            corners.append(([x + margin, 0, z + margin], [x + 1 - margin, height, z + 1 - margin]))
            colours.append(colour)
        for (x, z), shade in zip(self.walls, self.shades):
            corners.append(([x, 0, z], [x + 1, WALL_M, z + 1]))
            colours.append((shade, shade, shade))
        end = float(self.side)
        for low_x, low_z, high_x, high_z in (
            (-1, -1, 0, end + 1),
            (end, -1, end + 1, end + 1),
            (-1, -1, end + 1, 0),
            (-1, end, end + 1, end + 1),
        ):
            corners.append(([low_x, 0, low_z], [high_x, WALL_M, high_z]))
            colours.append((150.0, 140.0, 130.0))
        low, high = (np.array(column, float) for column in zip(*corners))
        return Boxes(low, high, np.array(colours))

    def walking_distances(self, target: Cell) -> dict[Cell, int]:
        """Steps from each free cell to the nearest cell beside the target; cells without a way are left out."""
        beside = [cell for cell in neighbours(target) if self.is_free(cell)]
        distances = dict.fromkeys(beside, 0)
        border = deque(beside)
        while border:
            cell = border.popleft()
            for other in neighbours(cell):
                if other not in distances and self.is_free(other):
                    distances[other] = distances[cell] + 1
                    border.append(other)
        return distances


def neighbours(cell: Cell) -> list[Cell]:
    """The four cells beside a cell."""
    return [(cell[0] + x, cell[1] + z) for x, z in HEADINGS]


def draw_layout(rng: np.random.Generator, side: int, walls: int, objects: int) -> RoomLayout:
    """Draw a layout: walls and objects in different cells, each equally likely."""
    places = [divmod(int(place), side) for place in rng.permutation(side * side)[: walls + objects]]
    kinds = [list(KINDS)[int(kind)] for kind in rng.permutation(len(KINDS))[:objects]]
    shades = tuple(float(shade) for shade in rng.uniform(90, 210, walls))
    return RoomLayout(side, tuple(places[objects:]), shades, tuple(zip(kinds, places[:objects])))
