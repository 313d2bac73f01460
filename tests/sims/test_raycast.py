"""Images of any model's cameras without OpenGL."""

import mujoco
import numpy as np

from sims.raycast import RayCamera

MODEL = """
<mujoco>
  <asset><material name="green" rgba="0 1 0 1"/></asset>
  <worldbody>
    <camera name="above" pos="0 0 2"/>
    <geom type="box" size=".3 .3 .1" pos=".6 .6 0" rgba="1 0 0 1" group="1"/>
    <geom type="box" size=".3 .3 .1" pos="-.6 -.6 0" material="green" group="1"/>
    <geom type="box" size="2 2 .1" pos="0 0 .5" rgba="0 0 1 1" group="3"/>
  </worldbody>
</mujoco>
"""


def test_geoms_have_their_colours_and_hidden_groups_are_not_drawn():
    model = mujoco.MjModel.from_xml_string(MODEL)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    image = RayCamera(model, "above", 32).draw(data)
    assert image.shape == (32, 32, 3) and image.dtype == np.uint8
    upper_right, lower_left = image[4, 27].astype(int), image[27, 4].astype(int)
    assert upper_right[0] > 100 and upper_right[1:].max() == 0
    assert lower_left[1] > 100 and lower_left[[0, 2]].max() == 0
    assert (image[16, 16] == [205, 216, 228]).all()
    covered = RayCamera(model, "above", 32, groups=(3,)).draw(data)
    assert covered[16, 16, 2] > 100 and covered[16, 16, :2].max() == 0
