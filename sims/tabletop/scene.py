"""MJCF of the scene: floor, table, seven-joint arm with gripper, and the things on the table."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import mujoco

from sims.render import Camera
from sims.tabletop.arm import ARM_XML, GAINS
from sims.tabletop.things import SceneObject

CAMERAS: dict[str, Camera] = {
    "front": Camera(position=(1.06, 0.0, 0.66), target=(0.40, 0.0, 0.06), fovy=46.0),  # what the policy sees
    "side": Camera(position=(1.35, -0.90, 0.85), target=(0.30, 0.0, 0.20), fovy=40.0),  # for people
}

CONTROL_HZ = 20.0


def scene_xml(things: Sequence[SceneObject], timestep: float, cameras: Mapping[str, Camera] = CAMERAS) -> str:
    """MJCF of the scene with these things, stepped by `timestep` seconds; positions are set per episode."""
    return _SCENE.format(
        timestep=timestep,
        cameras="\n    ".join(camera.xml(name) for name, camera in cameras.items()),
        arm=ARM_XML,
        things="\n    ".join(thing.xml() for thing in things),
        actuators=GAINS,
    )


def scene_model(things: Sequence[SceneObject], timestep: float) -> mujoco.MjModel:
    """Compile the scene."""
    return mujoco.MjModel.from_xml_string(scene_xml(things, timestep))


def scene_digest(things: Sequence[SceneObject], timestep: float) -> str:
    """Hash of the scene, eight hex digits: bodies, gains, colours, lights, cameras."""
    return hashlib.blake2b(scene_xml(things, timestep).encode(), digest_size=4).hexdigest()


# a diverged environment must be seen, not silently reset: autoreset is off
_SCENE = """
<mujoco model="tabletop">
  <compiler angle="radian" autolimits="true"/>
  <option timestep="{timestep}" integrator="implicitfast" cone="elliptic"><flag autoreset="disable"/></option>
  <visual><headlight ambient=".42 .42 .42" diffuse=".2 .2 .2" specular="0 0 0"/></visual>
  <asset>
    <texture type="skybox" builtin="gradient" rgb1=".64 .73 .82" rgb2=".89 .91 .93" width="64" height="64"/>
  </asset>
  <default>
    <default class="static"><geom group="1" rgba=".88 .83 .76 1"/></default>
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
    <light type="directional" pos=".4 -.5 1.5" dir="-.35 .45 -.82" diffuse=".45 .45 .45" specular="0 0 0"/>
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
