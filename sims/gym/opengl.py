"""Which OpenGL the environments of other packages draw with."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys

VARIABLE = "MUJOCO_GL"


def choose_gl() -> str:
    """Name the back end that draws on this machine, where the user has not: the packages' own choice needs a display.

    It must be named before a package that draws is imported. "none" where MuJoCo is missing or nothing draws; drawing
    then fails by itself. Environments that draw without MuJoCo are not concerned.
    """
    if VARIABLE not in os.environ and importlib.util.find_spec("mujoco") is not None:
        from sims.render.probe import probe

        drawing = next((name for name in ("egl", "osmesa") if probe(name) is None), None)
        if drawing is not None:
            os.environ[VARIABLE] = drawing
            # MuJoCo has read the variable when it was imported, for its own renderer
            for name in [n for n in sys.modules if n.startswith("mujoco.") and n.endswith(".gl_context")]:
                importlib.reload(sys.modules[name])
    return os.environ.get(VARIABLE, "none")
