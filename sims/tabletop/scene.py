"""The scene: a floor, a table, a seven-joint arm with a gripper, and the things on the table, as MJCF."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mujoco

from sims.render import Camera
from sims.tabletop.arm import ARM_XML, GAINS

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

CAMERAS: dict[str, Camera] = {
    "front": Camera(position=(1.06, 0.0, 0.66), target=(0.45, 0.0, 0.05), fovy=46.0),  # what the policy sees
    "side": Camera(position=(1.25, -0.85, 0.75), target=(0.32, 0.02, 0.14), fovy=40.0),  # for people
}

TIMESTEP = 0.005  # seconds
SUBSTEPS = 10  # physics steps per control step: 20 Hz
CONTROL_HZ = 1 / (TIMESTEP * SUBSTEPS)
CUBE_HALF_M = 0.03


@dataclass(frozen=True)
class Cube:
    """A coloured cube. A ghost cannot be touched or moved by contact: it only marks a place."""

    name: str
    colour: str
    half_m: float = CUBE_HALF_M
    ghost: bool = True

    def xml(self) -> str:
        if self.colour not in COLOURS:
            raise ValueError(f"sim.objects: no colour {self.colour!r}; known are {sorted(COLOURS)}")
        rgb = " ".join(map(str, COLOURS[self.colour]))
        size = f"{self.half_m} {self.half_m} {self.half_m}"
        geom = f'<geom name="{self.name}" type="box" size="{size}" rgba="{rgb} 1" '
        if self.ghost:
            return f'<body name="{self.name}" mocap="true" pos="0 0 {self.half_m}">{geom}class="ghost"/></body>'
        return (
            f'<body name="{self.name}" pos="0 0 {self.half_m}"><freejoint/>'
            f'{geom}mass="0.1" friction="0.6" condim="4"/></body>'
        )


def scene_model(things: Sequence[Cube], cameras: Mapping[str, Camera] = CAMERAS) -> mujoco.MjModel:
    """The compiled scene with these things; where they lie is set per episode."""
    return mujoco.MjModel.from_xml_string(
        _SCENE.format(
            timestep=TIMESTEP,
            cameras="\n    ".join(camera.xml(name) for name, camera in cameras.items()),
            arm=ARM_XML,
            things="\n    ".join(thing.xml() for thing in things),
            actuators=GAINS,
        )
    )


# a diverged world must be seen, not silently reset: autoreset is off
_SCENE = """
<mujoco model="tabletop">
  <compiler angle="radian" autolimits="true"/>
  <option timestep="{timestep}" integrator="implicitfast" cone="elliptic"><flag autoreset="disable"/></option>
  <visual><headlight ambient=".4 .4 .4" diffuse=".3 .3 .3" specular="0 0 0"/></visual>
  <default>
    <default class="static"><geom group="1" rgba=".80 .76 .70 1"/></default>
    <default class="ghost"><geom contype="0" conaffinity="0"/></default>
    <default class="arm">
      <geom contype="0" conaffinity="0" rgba=".93 .93 .91 1"/>
      <joint damping="1" armature=".08"/>
    </default>
    <default class="metal"><geom contype="0" conaffinity="0" rgba=".27 .31 .37 1"/></default>
    <default class="finger">
      <geom rgba=".98 .98 .98 1" friction="1.2" condim="4" solref=".01 1" mass=".02"/>
      <joint type="slide" range="0 .04" damping="4" armature=".02"/>
    </default>
  </default>
  <worldbody>
    <light pos=".4 -.5 1.5" dir="-.2 .4 -1" diffuse=".5 .5 .5" specular="0 0 0"/>
    {cameras}
    <geom name="floor" class="static" type="plane" size="4 4 .1" pos="0 0 -.62" rgba=".38 .42 .48 1"/>
    <geom name="table" class="static" type="box" size=".52 .52 .02" pos=".36 0 -.02"/>
    <geom class="static" type="box" size=".03 .03 .29" pos=".82 .46 -.33" rgba=".52 .46 .40 1"/>
    <geom class="static" type="box" size=".03 .03 .29" pos=".82 -.46 -.33" rgba=".52 .46 .40 1"/>
    <geom class="static" type="box" size=".03 .03 .29" pos="-.1 .46 -.33" rgba=".52 .46 .40 1"/>
    <geom class="static" type="box" size=".03 .03 .29" pos="-.1 -.46 -.33" rgba=".52 .46 .40 1"/>
    <geom class="static" type="cylinder" size=".085 .02" pos="0 0 .02" rgba=".27 .31 .37 1"/>
    {arm}
    {things}
  </worldbody>
  <actuator>
    {actuators}
  </actuator>
</mujoco>
"""
