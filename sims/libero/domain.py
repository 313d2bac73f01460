"""robosuite's environment of a LIBERO task, built without GL and without its observations."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import warnings
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

    # the class checks that its name is that of the problem
    kind = type(domain.__name__, (domain,), {"_initialize_sim": initialise}) if lean else domain
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


def _import_quietly() -> None:
    """Import robosuite, which names a GL back end when it is imported, without its advice about a macro file."""
    # any back end but EGL, which robosuite imports unasked; nothing is drawn with this name
    os.environ.setdefault("MUJOCO_GL", "glx")
    warnings.filterwarnings("ignore", module="glfw")
    logging.getLogger("robosuite_logs").setLevel(logging.ERROR)
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        import robosuite  # noqa: F401
