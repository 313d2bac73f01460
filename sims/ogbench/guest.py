"""OGBench's manipulation tasks as a guest: needs ogbench, mujoco, numpy and gymnasium."""

from __future__ import annotations

import functools
from importlib.metadata import version
from typing import Any

import gymnasium
import numpy as np

from sims.host.tasks import task_of
from sims.ogbench.sizes import ACTION, CENTRE, METRES, SCENES, sizes
from sims.packaged import PackagedEnv

CONTROL_HZ = 20
SENTENCES = {
    "cube": "move the cube to the target",
    "button": "press the button",
    "drawer": "move the drawer",
    "window": "move the window",
}
_LOCKS = {"drawer": 0, "window": 1}  # the button that locks it


class OGBench:
    """A table of OGBench; `sims.ogbench.sim.OGBenchSim` describes the arguments."""

    def __init__(self, scene: str = "cube-single", chunk: int = 1, max_steps: int = 200, image_size: int = 0):
        if scene not in SCENES:
            raise ValueError(f"sim.scene={scene!r} is none of {', '.join(SCENES)}")
        self.scene, self.chunk, self.max_steps, self.image_size = scene, chunk, max_steps, image_size
        self.tasks = self.held_out_tasks = SCENES[scene].tasks

    @property
    def name(self) -> str:
        return f"ogbench-{self.scene}"

    def make_env(self) -> OGBenchEnv:
        return OGBenchEnv(self)

    def sizes(self) -> dict[str, Any]:
        return sizes(self.scene, self.chunk)

    def contract(self) -> dict[str, Any]:
        options = {name: getattr(self, name) for name in ("scene", "chunk", "max_steps", "image_size")}
        return {"sim": self.name, **options, **{package: version(package) for package in ("ogbench", "mujoco")}}

    def expert(self, env: gymnasium.Env) -> np.ndarray:
        """The package's Markov oracle's next action, float32 [1, 5]; it plans single control steps."""
        if self.chunk != 1:
            raise ValueError(f"OGBench's experts plan single control steps: set sim.chunk=1, not {self.chunk}")
        table: OGBenchEnv = env.unwrapped  # type: ignore[assignment]
        return np.asarray(table.expert.select_action(None, table.known), np.float32)[None]


class OGBenchEnv(PackagedEnv):
    """One episode after the other: one object is to be moved, or one button pressed, in a random scene.

    Scenes and goals are those that the package records its data sets in.

    Args:
        world: with the options.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": CONTROL_HZ}

    def __init__(self, world: OGBench):
        self.world, self.objects = world, SCENES[world.scene]
        table = read_scene(world.scene)
        super().__init__(table, world.chunk, ACTION, self.objects.proprio, world.max_steps, world.image_size)
        self.known: dict[str, Any] = {}
        """What the expert reads."""

    def begin(self, seed: int) -> str:
        task = task_of(seed, self.objects.tasks)
        env = self._env
        env.reset(seed=seed)
        if task in _LOCKS:
            env._cur_button_states[_LOCKS[task]] = 1
            env._apply_button_states()
        while env._target_task != task or self._is_solved():
            env.set_new_target(return_info=False)
        env._success, self.known, self._seen = False, env.get_reset_info(), env.compute_observation()
        self.expert, self.instruction = make_oracle(task, env), SENTENCES[task]
        self.expert.reset(None, self.known)
        return task

    def _is_solved(self) -> bool:
        self._env.post_step()
        return bool(self._env._success)

    def play(self, action: np.ndarray) -> tuple[bool, bool]:
        self._seen, _, _, _, self.known = self._env.step(action)
        return bool(self.known["success"]), False

    def read(self) -> np.ndarray:
        return np.concatenate([self._seen, *self._list_goal()])

    def _list_goal(self) -> list[np.ndarray]:
        """Which cube and where, which button and where, and places of the drawer and the window."""
        info, goal = self.known, []
        if self.objects.cubes:
            yaw = info["privileged/target_block_yaw"]
            which = np.eye(self.objects.cubes)[info["privileged/target_block"]]
            goal += [which, scale_place(info["privileged/target_block_pos"]), np.cos(yaw), np.sin(yaw)]
        if self.objects.buttons:
            which = np.eye(self.objects.buttons)[info["privileged/target_button"]]
            goal += [which, scale_place(info["privileged/target_button_top_pos"])]
        if "drawer" in self.objects.tasks:
            goal += [info["privileged/target_drawer_pos"] / METRES, info["privileged/target_window_pos"] / METRES]
        return goal


@functools.cache
def read_scene(scene: str) -> Any:
    """The package's environment, with what its first reset compiles."""
    import ogbench.manipspace  # noqa: F401  # registers the environments

    env = gymnasium.make(f"{scene}-v0", mode="data_collection", visualize_info=False, disable_env_checker=True)
    env.reset(seed=0)
    return env.unwrapped


def scale_place(place: np.ndarray) -> np.ndarray:
    """A place (m) as the package observes places."""
    return (place - CENTRE) / METRES


def make_oracle(task: str, env: Any) -> Any:
    """The package's scripted expert of a task."""
    from ogbench.manipspace.oracles.markov import button_markov, cube_markov, drawer_markov, window_markov

    classes = {
        "cube": cube_markov.CubeMarkovOracle,
        "button": button_markov.ButtonMarkovOracle,
        "drawer": drawer_markov.DrawerMarkovOracle,
        "window": window_markov.WindowMarkovOracle,
    }
    return classes[task](env=env)
