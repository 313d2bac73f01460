"""A simulation that diverges is an error, whatever MuJoCo makes of it."""

import subprocess
import sys

import mujoco
import pytest

from sims.divergence import count_divergences, refuse_divergence

BALL = "<mujoco><worldbody><body><freejoint/><geom size='.1' mass='1'/></body></worldbody></mujoco>"


@pytest.mark.parametrize("name", ["qpos", "qvel"])
def test_a_simulation_that_starts_over_is_refused(name):
    model = mujoco.MjModel.from_xml_string(BALL)
    data = mujoco.MjData(model)
    with refuse_divergence(data):
        mujoco.mj_step(model, data)
    getattr(data, name)[0] = 1e12
    with pytest.raises(FloatingPointError, match="diverged and started over"), refuse_divergence(data):
        mujoco.mj_step(model, data)
    assert abs(data.qpos[:3]).max() < 1  # its numbers say nothing: they are those of the model's first state
    assert count_divergences(data) == 1
    with refuse_divergence(data):  # another episode of the same data
        mujoco.mj_step(model, data)


def test_liberos_guest_leaves_mujoco_to_be_imported_after_its_renderer_was_named():
    code = "import sys, sims.libero.guest; print('mujoco' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
