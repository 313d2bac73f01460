"""Select the OpenGL back end with which other packages' environments render."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys

VARIABLE = "MUJOCO_GL"


def choose_gl() -> str:
    """Select a back end that renders on this machine, unless the user has set one.

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
