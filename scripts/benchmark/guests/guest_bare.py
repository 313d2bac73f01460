"""Steps per second of a simulator package as it comes, without mmrl: run by the Python that has the package.

Arguments: the folders of the package sims as JSON, the name of the simulator, its arguments as JSON, pixels a side of
an image after every step (0: none), seconds.
"""

import json
import os
import sys
import time
import types

import numpy as np


def metaworld(options, size):
    """One environment of the task, or of the first task of the benchmark; returns (reset, step, draw)."""
    import metaworld as package

    from sims.metaworld.guest import MetaWorld
    from sims.metaworld.images import UprightCamera

    env = package.env_dict.ALL_V3_ENVIRONMENTS[MetaWorld(options["task"]).tasks[0]]()
    env._freeze_rand_vec, env._set_task_called = False, True
    env.reset()
    camera = UprightCamera(env.model, "corner2", size) if size else None
    return env.reset, env.step, lambda: camera.draw(env.data)


def libero(options, size):
    """The first task of the suite in the package's own wrapper, with its observations of all objects."""
    os.environ.setdefault("MUJOCO_GL", "glx")
    from libero.libero.envs.env_wrapper import ControlEnv

    from sims.libero.cameras import make_camera
    from sims.libero.suites import list_tasks

    files = list_tasks(options["suite"])[0]
    env = ControlEnv(files.definition, use_camera_obs=False, has_offscreen_renderer=False, hard_reset=False)
    states = files.load_states()

    def reset():
        env.reset()
        env.set_init_state(states[0])

    reset()
    camera = make_camera("ray", env.sim.model._model, "agentview", size) if size else None
    return reset, env.step, lambda: camera.draw(env.sim.data._data)


def main(folders, name, options, size, seconds):
    """Print the rate of random actions; the episode is begun anew every 200 steps."""
    package = types.ModuleType("sims")
    package.__path__ = json.loads(folders)
    sys.modules["sims"] = package
    reset, step, draw = {"metaworld": metaworld, "libero": libero}[name](json.loads(options), int(size))
    dims = {"metaworld": 4, "libero": 7}[name]
    actions = np.random.default_rng(0).uniform(-1, 1, (64, dims))
    step(actions[0])
    done, start = 0, time.perf_counter()
    while time.perf_counter() < start + float(seconds):
        step(actions[done % 64])
        if int(size):
            draw()
        done += 1
        if done % 200 == 0:
            reset()
    print(done / (time.perf_counter() - start))


if __name__ == "__main__":
    main(*sys.argv[1:])
