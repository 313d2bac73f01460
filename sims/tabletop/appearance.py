"""Visual domain randomisation: camera, light, colours and background."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, get_args

import numpy as np

from mmrl.core.rng import derive_rng
from sims.render.looks import LAMP, Look
from sims.render.patterns import Pattern, background

_SURFACES = {"table": (0.88, 0.83, 0.76), "floor": (0.38, 0.42, 0.48)}  # colours as the scene has them
_LIMITS = {"camera_m": 0.2, "camera_deg": 15.0, "light_deg": 60.0, "light": 0.8, "surface": 1.0, "thing": 0.15}


@dataclass(frozen=True)
class Appearance:
    """Ranges of visual domain randomisation. An environment's look is a function of its seed alone.

    Shapes, places and physics stay; instructions stay true, because things keep colours that deserve their names.

    Args:
        camera_m: largest shift of the cameras along each axis, metres; at most 0.2.
        camera_deg: largest turn of the cameras left or right, and up or down, degrees; at most 15.
        light_deg: largest angle between the lamp's direction and the scene's, degrees; at most 60.
        light: largest relative change of the light from everywhere, and of the lamp's; at most 0.8.
        surface: how far the colours of table and floor go towards random, muted ones; 0 keeps, 1 replaces.
        thing: largest change of a thing's colour per channel, of the range [0, 1]; at most 0.15.
        background: behind the table, in place of floor and sky: "plain" keeps them, "waves" or "photos".
    """

    camera_m: float = 0.0
    camera_deg: float = 0.0
    light_deg: float = 0.0
    light: float = 0.0
    surface: float = 0.0
    thing: float = 0.0
    background: Pattern = "plain"

    def __post_init__(self) -> None:
        for name, limit in _LIMITS.items():
            if not 0 <= getattr(self, name) <= limit:
                raise ValueError(f"sim.appearance.{name} must be in [0, {limit:g}], got {getattr(self, name)}")
        if self.background not in get_args(Pattern):
            raise ValueError(
                f"sim.appearance.background must be one of {list(get_args(Pattern))}, got {self.background!r}"
            )

    def look(self, seed: int) -> Look:
        """Draw the look of the environment with this seed."""
        rng = derive_rng("appearance", seed)
        # always the same draws in the same order: turning one amount up leaves the other looks as they were
        shift, turn, lamp, bright = (rng.uniform(-1, 1, count) for count in (3, 2, 2, 2))
        # muted, and not dark: things of every colour stand out
        colours = rng.uniform(0.45, 0.85, (len(_SURFACES), 1)) + rng.uniform(-0.15, 0.15, (len(_SURFACES), 3))
        yaw, pitch = np.deg2rad(self.camera_deg) * turn
        return Look(
            shift=tuple((self.camera_m * shift).tolist()),
            yaw=float(yaw),
            pitch=float(pitch),
            lamp=_tilt(np.deg2rad(self.light_deg) * (lamp[0] + 1) / 2, np.pi * lamp[1]),
            bright=tuple((1 + self.light * bright).tolist()),
            colours={
                name: tuple(((1 - self.surface) * np.array(base) + self.surface * colour).tolist())
                for (name, base), colour in zip(_SURFACES.items(), colours)
            }
            if self.surface
            else {},
            tint=self.thing,
            seed=seed,
            background=background(self.background, rng),
            backdrop=("floor",),
        )

    def contract(self) -> dict[str, Any]:
        """The ranges as plain values."""
        return asdict(self)


def _tilt(angle: float, around: float) -> tuple[float, float, float]:
    """Turn the scene's direction to the lamp by an angle towards a side, rad."""
    lamp = np.asarray(LAMP)
    if angle == 0:
        return LAMP
    lamp = lamp / np.linalg.norm(lamp)
    side = np.cross(lamp, (0.0, 1.0, 0.0))
    side /= np.linalg.norm(side)
    away = np.cos(around) * side + np.sin(around) * np.cross(lamp, side)
    return tuple((np.cos(angle) * lamp + np.sin(angle) * away).tolist())
