"""Things that can be placed on the table, as MJCF: cubes, discs, plates, drawers, buttons."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

COLOURS: dict[str, tuple[float, float, float]] = {
    "red": (0.86, 0.20, 0.18),
    "green": (0.20, 0.66, 0.30),
    "blue": (0.16, 0.38, 0.88),
    "yellow": (0.97, 0.80, 0.16),
    "purple": (0.55, 0.26, 0.70),
    "orange": (0.96, 0.52, 0.12),
    "cyan": (0.14, 0.72, 0.78),
    "black": (0.10, 0.10, 0.12),
}

CUBE_HALF_M = 0.03
_GREY = ".45 .43 .42 1"


@dataclass(frozen=True)
class SceneObject(ABC):
    """SceneObject: a coloured object. Its centre is the origin of the body with its name."""

    name: str
    colour: str

    def __post_init__(self) -> None:
        if self.colour not in COLOURS:
            raise ValueError(f"sim.colours: no colour {self.colour!r}; known are {sorted(COLOURS)}")

    @property
    def rgba(self) -> str:
        return " ".join(map(str, COLOURS[self.colour])) + " 1"

    @property
    @abstractmethod
    def rest_m(self) -> float:
        """Height of its centre when it stands on the table, metres."""

    @property
    def base(self) -> str | None:
        """The mocap body that is moved to place it; None for a thing that moves freely."""
        return self.name

    @property
    def slide(self) -> str | None:
        """Its own joint, whose travel from rest is part of the state; None without one."""
        return None

    @abstractmethod
    def xml(self) -> str: ...


@dataclass(frozen=True)
class Cube(SceneObject):
    """A coloured cube. A ghost has no contacts: it only marks a place."""

    half_m: float = CUBE_HALF_M
    ghost: bool = True

    @property
    def rest_m(self) -> float:
        return self.half_m

    @property
    def base(self) -> str | None:
        return self.name if self.ghost else None

    def xml(self) -> str:
        size = f"{self.half_m} {self.half_m} {self.half_m}"
        geom = f'<geom name="{self.name}" type="box" size="{size}" rgba="{self.rgba}" '
        if self.ghost:
            return f'<body name="{self.name}" mocap="true" pos="0 0 {self.half_m}">{geom}class="ghost"/></body>'
        return (
            f'<body name="{self.name}" pos="0 0 {self.half_m}"><freejoint/>'
            f'{geom}mass="0.1" friction="0.8" priority="1" condim="4"/></body>'
        )


@dataclass(frozen=True)
class Disc(SceneObject):
    """A flat round mark on the table without contacts."""

    radius_m: float = 0.05

    @property
    def rest_m(self) -> float:
        return 0.001

    def xml(self) -> str:
        return (
            f'<body name="{self.name}" mocap="true" pos="0 0 .001"><geom name="{self.name}" class="ghost" '
            f'type="cylinder" size="{self.radius_m} .001" rgba="{self.rgba}"/></body>'
        )


@dataclass(frozen=True)
class Plate(SceneObject):
    """A low solid square on the table: too high to push a cube onto it."""

    half_m: float = 0.05
    thick_m: float = 0.024

    @property
    def rest_m(self) -> float:
        return self.thick_m / 2

    def xml(self) -> str:
        half = self.thick_m / 2
        return (
            f'<body name="{self.name}" mocap="true" pos="0 0 {half}"><geom name="{self.name}" type="box" contype="0" '
            f'size="{self.half_m} {self.half_m} {half}" rgba="{self.rgba}" friction="0.6" condim="4"/></body>'
        )


@dataclass(frozen=True)
class Drawer(SceneObject):
    """A drawer that opens along +x, in a case of its own; its centre is the middle of the handle's bar.

    The case and the tray are for the eye; the front and the handle can be touched.
    """

    travel_m: float = 0.15

    @property
    def rest_m(self) -> float:
        return 0.055

    @property
    def base(self) -> str | None:
        return f"{self.name}_case"

    @property
    def slide(self) -> str | None:
        return f"{self.name}_slide"

    def xml(self) -> str:
        ghost = f'class="ghost" type="box" rgba="{_GREY}"'
        front = f'type="box" contype="0" rgba="{self.rgba}"'
        joint = f'name="{self.name}_slide" type="slide" axis="1 0 0" range="0 {self.travel_m}"'
        return f"""<body name="{self.name}_case" mocap="true" pos="0 0 {self.rest_m}">
      <geom {ghost} size=".075 .062 .004" pos="-.132 0 .046"/>
      <geom {ghost} size=".075 .004 .048" pos="-.132 .058 -.002"/>
      <geom {ghost} size=".075 .004 .048" pos="-.132 -.058 -.002"/>
      <geom {ghost} size=".004 .062 .048" pos="-.203 0 -.002"/>
      <body name="{self.name}" gravcomp="1">
        <joint {joint} damping="3" frictionloss=".3"/>
        <geom {ghost} size=".065 .05 .003" pos="-.125 0 -.04" mass=".1"/>
        <geom {ghost} size=".065 .003 .02" pos="-.125 .05 -.022" mass=".02"/>
        <geom {ghost} size=".065 .003 .02" pos="-.125 -.05 -.022" mass=".02"/>
        <geom name="{self.name}" {front} size=".006 .054 .042" pos="-.053 0 -.004" mass=".1"/>
        <geom name="{self.name}_bar" {front} size=".007 .045 .009" mass=".03"/>
        <geom name="{self.name}_left" {front} size=".02 .005 .009" pos="-.027 .04 0" mass=".01"/>
        <geom name="{self.name}_right" {front} size=".02 .005 .009" pos="-.027 -.04 0" mass=".01"/>
      </body>
    </body>"""


@dataclass(frozen=True)
class Button(SceneObject):
    """A round button on a grey base; its travel is how deep it is pressed, against a spring."""

    travel_m: float = 0.016

    @property
    def rest_m(self) -> float:
        return 0.032

    @property
    def base(self) -> str | None:
        return f"{self.name}_base"

    @property
    def slide(self) -> str | None:
        return f"{self.name}_slide"

    def xml(self) -> str:
        joint = f'name="{self.name}_slide" type="slide" axis="0 0 -1" range="0 {self.travel_m}"'
        return f"""<body name="{self.name}_base" mocap="true" pos="0 0 {self.rest_m}">
      <geom class="ghost" type="box" size=".042 .042 .01" pos="0 0 -.022" rgba="{_GREY}"/>
      <body name="{self.name}" gravcomp="1">
        <joint {joint} stiffness="150" damping="3"/>
        <geom name="{self.name}" type="cylinder" contype="0" size=".032 .014" mass=".05" rgba="{self.rgba}"/>
      </body>
    </body>"""
