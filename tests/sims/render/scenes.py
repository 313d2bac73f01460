"""A box of known size in front of a camera, and renderers to look at it with."""

import mujoco
import numpy as np
import pytest
from mujoco.batch import Batch

from sims.render import Camera, make_renderer, probe

EYE = Camera(position=(0.0, -2.0, 0.0), target=(0.0, 0.0, 0.0), fovy=53.13010235415598)  # tan(fovy / 2) = 0.5
BOX = 0.25  # metres, half a side; its face is 1.75 m from the eye, 2 * 1.75 * 0.5 = 1.75 m wide in the image
SIZE = 70  # pixels: 40 a metre at the face, so that the face is 20 pixels wide, from 25 to 45

GL = next((name for name in ("egl", "osmesa") if probe(name) is None), None)  # a process can use one
BACKENDS = ["ray", pytest.param(GL, marks=pytest.mark.skipif(GL is None, reason="no GL draws here"))]


def box(backend: str = "ray", x: float = 0.0):
    """A box at (x, 0, 0), a wall 3 m behind the eye's plane of sight and the sky; batch and renderer."""
    model = mujoco.MjModel.from_xml_string(f"""
        <mujoco><visual><map znear=".02" zfar="50"/></visual><worldbody>{EYE.xml("eye")}
          <geom name="wall" group="1" type="box" pos="0 1.1 0" size="5 .1 .5" rgba=".5 .5 .5 1"/>
          <body name="thing" pos="{x} 0 0"><freejoint/>
            <geom name="thing" type="box" size="{BOX} {BOX} {BOX}" rgba="0 1 0 1"/></body>
        </worldbody></mujoco>""")
    return Batch(model, 3, 1), make_renderer(backend, model, {"eye": EYE})


def face() -> np.ndarray:
    """Where the box's face is, bool [SIZE, SIZE]."""
    inside = np.zeros((SIZE, SIZE), bool)
    inside[25:45, 25:45] = True
    return inside
