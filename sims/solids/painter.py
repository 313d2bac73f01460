"""Scenes of solids on a table, cast by MuJoCo, with the exact boxes of their visible pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot

import mujoco
import numpy as np
from mujoco.batch import Batch

from sims.render.camera import Camera
from sims.render.ray import STATIC_GROUP, RayRenderer

Box = tuple[int, int, int, int]

COLOURS: dict[str, tuple[float, float, float]] = {
    "red": (0.86, 0.16, 0.16),
    "green": (0.16, 0.63, 0.24),
    "blue": (0.16, 0.31, 0.86),
    "yellow": (0.94, 0.82, 0.16),
    "purple": (0.55, 0.20, 0.67),
    "orange": (0.96, 0.55, 0.12),
    "cyan": (0.16, 0.75, 0.82),
    "pink": (0.96, 0.59, 0.75),
}
_GEOMS = {"cube": ("box", "{r} {r} {r}"), "ball": ("sphere", "{r}"), "cylinder": ("cylinder", "{r} {r}")}
SOLIDS = tuple(_GEOMS)
_SMALLEST = 20  # visible pixels; below, shapes look alike
_PLACES, _RESTARTS = 20, 10  # tries of one solid's place, and of all places
_FOV, _AWAY = 40.0, 1.6  # degrees, and metres between the camera and the middle of the table
_WIDTH = 2 * _AWAY * np.tan(np.deg2rad(_FOV) / 2)  # metres that the image spans at the middle of the table


@dataclass(frozen=True)
class Solid:
    """One solid, and the box around its visible pixels: edges x1, y1, x2, y2."""

    shape: str
    colour: str
    box: Box

    @property
    def key(self) -> tuple[str | int, ...]:
        """What makes it the solid that it is."""
        return self.shape, self.colour, *self.box


@dataclass(frozen=True, eq=False)
class SolidScene:
    """Solids on a table in the order in which they were asked for, and their image, uint8 [size, size, 3]."""

    shapes: tuple[Solid, ...]
    image: np.ndarray

    @property
    def size(self) -> int:
        """Side of the image in pixels."""
        return len(self.image)

    def render(self) -> np.ndarray:
        """Return a copy of the image."""
        return self.image.copy()


@dataclass(frozen=True)
class SolidPainter:
    """Places solids at random turns on a table below a camera at a random elevation.

    Args:
        elevations: smallest and largest angle of the camera above the table, degrees.
    """

    elevations: Sequence[float] = (40.0, 65.0)

    shapes = SOLIDS
    colours = tuple(COLOURS)

    def __post_init__(self) -> None:
        object.__setattr__(self, "elevations", tuple(self.elevations))
        if len(self.elevations) != 2 or not 20 <= self.elevations[0] <= self.elevations[1] <= 85:
            raise ValueError(
                f"solids: elevations must be the smallest and the largest, from 20 to 85 degrees, got {self.elevations}"
            )

    def paint(
        self,
        rng: np.random.Generator,
        kinds: Sequence[tuple[str, str]],
        size: int,
        sides: tuple[int, int],
        max_overlap: float,
    ) -> SolidScene | None:
        """Draw size, place and turn of each (shape, colour), and render them; None if they do not fit.

        Args:
            rng: random stream.
            kinds: shape and colour of each solid.
            size: side of the image in pixels.
            sides: smallest and largest side of a solid in pixels, about.
            max_overlap: most that two boxes share, as a fraction of the smaller one.
        """
        tilt = np.deg2rad(rng.uniform(*self.elevations))
        camera = Camera((0.0, -_AWAY * float(np.cos(tilt)), _AWAY * float(np.sin(tilt))), (0.0, 0.0, 0.0), _FOV)
        # a cube seen across its edge is wider than its side
        radii = rng.uniform(sides[0], sides[1], len(kinds)) / size * _WIDTH / 2 / 1.3
        places = _draw_places(rng, radii, camera)
        if places is None:
            return None
        turns = rng.uniform(0, 90, len(kinds))
        image, segmentation = _render(_write_model(kinds, radii, places, turns, camera), camera, size)
        boxes = [_find_box(segmentation == 1 + i) for i in range(len(kinds))]
        visible = [box for box in boxes if box is not None]
        if len(visible) < len(kinds) or any(
            _overlap(box, other) > max_overlap for i, box in enumerate(visible) for other in visible[:i]
        ):
            return None
        return SolidScene(tuple(Solid(*kind, box) for kind, box in zip(kinds, visible)), image)


def _draw_places(rng: np.random.Generator, radii: np.ndarray, camera: Camera) -> np.ndarray | None:
    """Draw places [n, 2] on the table that are in view and apart; None if there are none."""
    tries = rng.uniform(-0.5, 0.5, (_RESTARTS, len(radii), _PLACES, 2)) * (_WIDTH, 1.4 * _WIDTH)
    heights = np.broadcast_to(radii[:, None, None], (*tries.shape[:3], 1))
    edges = camera.project(np.concatenate([tries, heights], axis=-1), 1)
    margins = (1.6 * radii / _WIDTH)[:, None, None]
    inside = ((edges > margins) & (edges < 1 - margins)).all(-1)
    for places, fits in zip(tries, inside):
        placed: list[tuple[float, float]] = []
        for radius, candidates in zip(radii, (places[i, fits[i]].tolist() for i in range(len(radii)))):
            for x, y in candidates:
                if all(hypot(x - u, y - v) > 1.5 * (radius + r) for (u, v), r in zip(placed, radii)):
                    placed.append((x, y))
                    break
            else:
                break
        if len(placed) == len(radii):
            return np.array(placed).reshape(-1, 2)
    return None


def _write_model(
    kinds: Sequence[tuple[str, str]], radii: np.ndarray, places: np.ndarray, turns: np.ndarray, camera: Camera
) -> str:
    """Write the MJCF of a table and solids; solid i is geom 1 + i."""
    geoms = []
    for (shape, colour), radius, (x, y), turn in zip(kinds, radii, places, turns):
        kind, size = _GEOMS[shape]
        rgba = " ".join(map(str, COLOURS[colour]))
        geoms.append(
            f'<geom type="{kind}" size="{size.format(r=f"{radius:.6g}")}" pos="{x:.6g} {y:.6g} {radius:.6g}" '
            f'euler="0 0 {turn:.6g}" rgba="{rgba} 1"/>'
        )
    table = f'<geom type="plane" size="9 9 1" rgba="0.78 0.76 0.72 1" group="{STATIC_GROUP}"/>'
    return f"<mujoco><worldbody>{table}{''.join(geoms)}{camera.xml('eye')}</worldbody></mujoco>"


def _render(xml: str, camera: Camera, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Render image [size, size, 3] and geom ids [size, size]."""
    model = mujoco.MjModel.from_xml_string(xml)
    renderer = RayRenderer(model, {"eye": camera})
    views = renderer.views(Batch(model, 1, 1), np.array([0]), "eye", size, ("rgb", "segmentation"))
    renderer.close()
    return views["rgb"][0], views["segmentation"][0]


def _find_box(mask: np.ndarray) -> Box | None:
    """Box around the pixels of a mask; None if there are few of them, or some at the edge of the image."""
    if mask.sum() < _SMALLEST or mask[[0, -1]].any() or mask[:, [0, -1]].any():
        return None
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def _overlap(box: Box, other: Box) -> float:
    """Shared area of two boxes as a fraction of the smaller one."""
    width, height = (min(box[2 + i], other[2 + i]) - max(box[i], other[i]) for i in (0, 1))
    smaller = min((b[2] - b[0]) * (b[3] - b[1]) for b in (box, other))
    return width * height / smaller if width > 0 and height > 0 else 0.0
