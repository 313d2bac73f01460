"""Domains of the tabletop: ranges of looks, camera poses, masses, friction and gains from which environments draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, get_args

import numpy as np

from mmrl.core.rng import derive_rng
from sims.render.looks import LAMP, Look
from sims.render.patterns import Pattern, background
from sims.tabletop.things import COLOURS, SceneObject

Range = tuple[float, float]
_SURFACES = ("table", "floor")
_HUE = 0.15  # largest difference of a channel of table and floor from the mean of the three
_GEOMS = ("", "_bar", "_left", "_right")  # a drawer's front and handle have one colour
_LIMITS: dict[str, Range] = {
    "camera_m": (0.0, 0.2),
    "camera_deg": (0.0, 15.0),
    "light_deg": (0.0, 60.0),
    "light": (0.2, 1.8),
    "surface": (0.15, 0.85),
    "thing": (0.0, 0.15),
    "mass": (0.1, 20.0),
    "friction": (0.1, 10.0),
    "gains": (0.3, 3.0),
}
FACTORS = ("mass", "friction", "gains")
"""In the order of `Start.dynamics`."""


@dataclass(frozen=True)
class Domain:
    """Domain randomisation: ranges from which every environment draws its look and its dynamics once an episode.

    A range is [least, largest]. What is None stays as the scene has it. Domains whose ranges do not overlap never draw
    the same value. Draws are functions of the initial state's seed alone; those of one range do not depend on whether
    there are others.

    Source: Tobin et al., "Domain Randomization for Transferring Deep Neural Networks from Simulation to the Real
    World", 2017, arXiv:1703.06907, section III-A (colours, textures, lights, camera); Peng et al., "Sim-to-Real
    Transfer of Robotic Control with Dynamics Randomization", 2018, arXiv:1710.06537, table I (masses, friction, gains).

    Args:
        camera_m: distance by which the cameras are moved, in a random direction, metres; at most 0.2.
        camera_deg: turn of the cameras, the root of the squared turns sideways and up or down, degrees; at most 15.
        light_deg: angle between the lamp's direction and the scene's, degrees; at most 60.
        light: factors of the light from everywhere and of the lamp's, one of each; from 0.2 to 1.8.
        surface: brightness of table and floor, which get random muted colours, the mean of red, green and blue;
            from 0.15 to 0.85.
        thing: change of each channel of a thing's colour, up or down, of the range [0, 1]; at most 0.15, so that the
            colours deserve their names.
        background: textures behind the table, in place of floor and sky: each of "plain" (floor and sky), "waves",
            "photos" is as probable as the others.
        mass: factor of the mass of the things that can be touched, log-uniform; from 0.1 to 20.
        friction: factor of their friction, log-uniform; from 0.1 to 10.
        gains: factor of the arm's servo gains, log-uniform; from 0.3 to 3.
    """

    camera_m: Range | None = None
    camera_deg: Range | None = None
    light_deg: Range | None = None
    light: Range | None = None
    surface: Range | None = None
    thing: Range | None = None
    background: tuple[Pattern, ...] = ("plain",)
    mass: Range | None = None
    friction: Range | None = None
    gains: Range | None = None

    def __post_init__(self) -> None:
        for name, (least, largest) in _LIMITS.items():
            values = getattr(self, name)
            if values is None:
                continue
            if len(values) != 2 or not least <= values[0] <= values[1] <= largest:
                raise ValueError(
                    f"{name} of a domain is a range [least, largest] within [{least:g}, {largest:g}], "
                    f"got {list(values)}"
                )
            object.__setattr__(self, name, tuple(float(value) for value in values))  # a config writes lists
        object.__setattr__(self, "background", tuple(self.background))
        unknown = [pattern for pattern in self.background if pattern not in get_args(Pattern)]
        if unknown or not self.background:
            known = list(get_args(Pattern))
            raise ValueError(f"background of a domain lists some of {known}, got {list(self.background)}")

    @property
    def varies_look(self) -> bool:
        """Whether environments look otherwise than the scene."""
        return any(field.default != getattr(self, field.name) for field in fields(self) if field.name not in FACTORS)

    @property
    def varies_dynamics(self) -> bool:
        """Whether environments move otherwise than the scene."""
        return any(getattr(self, name) is not None for name in FACTORS)

    def look(self, seed: int, things: Sequence[SceneObject]) -> Look:
        """Draw the look of the environment with this seed; `things` are those on its table."""
        shift = np.zeros(3)
        if self.camera_m is not None:
            direction = derive_rng("domain camera", seed).standard_normal(3)
            shift = self._draw("camera_m", seed) * direction / np.linalg.norm(direction)
        yaw = pitch = 0.0
        if self.camera_deg is not None:
            side = derive_rng("domain turn", seed).uniform(0, 2 * np.pi)
            turn = np.deg2rad(self._draw("camera_deg", seed))
            yaw, pitch = turn * np.cos(side), turn * np.sin(side)
        lamp = LAMP
        if self.light_deg is not None:
            side = derive_rng("domain lamp", seed).uniform(0, 2 * np.pi)
            lamp = _tilt(np.deg2rad(self._draw("light_deg", seed)), side)
        bright = (1.0, 1.0) if self.light is None else (self._draw("light", seed, 0), self._draw("light", seed, 1))
        patterns = derive_rng("domain background", seed)
        pattern = self.background[int(patterns.integers(len(self.background)))]
        return Look(
            shift=tuple(shift.tolist()),
            yaw=float(yaw),
            pitch=float(pitch),
            lamp=lamp,
            bright=bright,
            colours={**self._surface_colours(seed), **self._thing_colours(seed, things)},
            seed=seed,
            background=background(pattern, patterns),
            backdrop=("floor",),
        )

    def dynamics(self, seed: int, plain: Sequence[float]) -> tuple[float, float, float]:
        """Draw the factors of mass, friction and gains of the environment with this seed.

        Args:
            seed: of the initial state.
            plain: the three factors where this domain has no range.
        """
        pairs = zip(FACTORS, plain, strict=True)
        mass, friction, gains = (
            value if getattr(self, name) is None else self._draw_factor(name, seed) for name, value in pairs
        )
        return mass, friction, gains

    def contract(self) -> dict[str, Any]:
        """The ranges that are set, as plain values."""
        values = {name: list(value) for name, value in asdict(self).items() if value is not None}
        return {name: value for name, value in values.items() if name != "background" or value != ["plain"]}

    def _draw(self, name: str, seed: int, *key: int) -> float:
        low, high = getattr(self, name)
        return float(derive_rng(f"domain {name}", seed, *key).uniform(low, high))

    def _draw_factor(self, name: str, seed: int) -> float:
        low, high = np.log(getattr(self, name))
        return float(np.exp(derive_rng(f"domain {name}", seed).uniform(low, high)))

    def _surface_colours(self, seed: int) -> dict[str, tuple[float, float, float]]:
        """Colours of table and floor: the drawn brightness, and differences of the channels that add up to zero."""
        if self.surface is None:
            return {}
        colours = {}
        for k, name in enumerate(_SURFACES):
            hue = derive_rng("domain hue", seed, k).uniform(-_HUE, _HUE, 3)
            hue -= hue.mean()
            colours[name] = tuple((self._draw("surface", seed, k) + hue * _HUE / max(np.abs(hue).max(), _HUE)).tolist())
        return colours

    def _thing_colours(self, seed: int, things: Sequence[SceneObject]) -> dict[str, tuple[float, float, float]]:
        """Colours of the things, changed in each channel by an amount of the range; none leaves [0, 1]."""
        colours = {}
        for thing in things if self.thing is not None else ():
            rng = derive_rng("domain thing", seed, thing.name)
            base = np.array(COLOURS[thing.colour])
            change = rng.uniform(*self.thing, 3) * rng.choice((-1, 1), 3)  # type: ignore[misc]
            change = np.where((base + change < 0) | (base + change > 1), -change, change)
            colours |= {f"{thing.name}{part}": tuple((base + change).tolist()) for part in _GEOMS}
        return colours


def _tilt(angle: float, around: float) -> tuple[float, float, float]:
    """Unit vector at an angle from the scene's direction to the lamp, towards a side, rad."""
    lamp = np.asarray(LAMP) / np.linalg.norm(LAMP)
    side = np.cross(lamp, (0.0, 1.0, 0.0))
    side /= np.linalg.norm(side)
    away = np.cos(around) * side + np.sin(around) * np.cross(lamp, side)
    return tuple((np.cos(angle) * lamp + np.sin(angle) * away).tolist())
