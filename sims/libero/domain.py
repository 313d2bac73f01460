"""robosuite's environment of a LIBERO task, built without GL and without its observations."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import warnings
from collections.abc import Iterator
from typing import Any

from sims.libero.lean import flatten_textures

CONTROL_HZ = 20


def build_env(definition: str, lean: bool) -> Any:
    """robosuite's environment of a task, without its observations, which are read from the state instead."""
    _import_quietly()
    import robosuite

    import libero.libero.envs.bddl_utils as parser
    from libero.libero.envs import TASK_MAPPING

    domain = TASK_MAPPING[parser.get_problem_info(definition)["problem_name"]]

    def initialise(self: Any, xml_string: Any = None) -> None:
        domain._initialize_sim(self, flatten_textures(xml_string or self.model.get_xml()))

    def step(self: Any, action: Any) -> Any:
        with compute_once(self.sim):
            return domain.step(self, action)

    # the class checks that its name is that of the problem
    kind = type(domain.__name__, (domain,), {"step": step, **({"_initialize_sim": initialise} if lean else {})})
    env = kind(
        definition,
        robots=["Panda"],
        controller_configs=robosuite.load_controller_config(default_controller="OSC_POSE"),
        initialization_noise=None,
        use_camera_obs=False,
        has_offscreen_renderer=False,
        control_freq=CONTROL_HZ,
        ignore_done=True,
        hard_reset=False,
        camera_names=["agentview", "robot0_eye_in_hand"],
    )
    env._observables.clear()
    return env


@contextlib.contextmanager
def compute_once(sim: Any) -> Iterator[None]:
    """Compute positions, velocities and contacts once a physics step while robosuite takes a control step.

    It asks for them twice, for itself and for its controller, which MuJoCo's step then computes a third time. The
    states are the same to the bit, and a control step takes about 0.6 of the time.
    """
    import mujoco

    model, data, computed = sim.model._model, sim.data._data, False

    def forward() -> None:
        nonlocal computed
        if not computed:
            mujoco.mj_step1(model, data)
            computed = True

    def step(with_udd: bool = True) -> None:
        nonlocal computed
        forward()
        mujoco.mj_step2(model, data)
        computed = False

    sim.forward, sim.step = forward, step
    try:
        yield
    finally:
        del sim.forward, sim.step


def _import_quietly() -> None:
    """Import robosuite, which names a GL back end when it is imported, without its advice about a macro file."""
    # any back end but EGL, which robosuite imports unasked; nothing is drawn with this name
    os.environ.setdefault("MUJOCO_GL", "glx")
    warnings.filterwarnings("ignore", module="glfw")
    logging.getLogger("robosuite_logs").setLevel(logging.ERROR)
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        import robosuite  # noqa: F401
