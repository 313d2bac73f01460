"""Meta-World's tasks as a guest: needs metaworld, mujoco, numpy and gymnasium."""

from __future__ import annotations

import copy
import functools
import warnings
from importlib.metadata import version
from typing import Any

import gymnasium
import mujoco
import numpy as np
from gymnasium import spaces

from sims.divergence import refuse_divergence
from sims.host.tasks import task_of
from sims.metaworld.images import UprightCamera
from sims.metaworld.sizes import LONGEST, STATE, sizes

CONTROL_HZ = 80
warnings.filterwarnings("ignore", message="Constant")  # of experts whose actions are clipped, as ours are


def list_tasks() -> tuple[dict[str, Any], dict[str, list[str]], list[str]]:
    """Classes of the 50 tasks by name, the names in each benchmark, and those of ML10's test tasks.

    The package is imported here, as this file is also read where Meta-World is not installed.
    """
    from metaworld import env_dict

    benchmarks = {"MT10": env_dict.MT10_V3, "MT25": env_dict.MT25_V3, "MT50": env_dict.MT50_V3}
    benchmarks["ML10"] = env_dict.ML10_V3["train"]
    return (
        dict(env_dict.ALL_V3_ENVIRONMENTS),
        {name: list(tasks) for name, tasks in benchmarks.items()},
        list(env_dict.ML10_V3["test"]),
    )


@functools.cache
def derive_copying_class(env_class: type) -> type:
    """A subclass whose environments copy one model of the scene; to read its files takes 0.1 s each time."""

    class CopiedModel(env_class):  # type: ignore[misc]
        model_read: Any = None

        def _initialize_simulation(self) -> tuple[Any, Any]:
            if CopiedModel.model_read is None:
                CopiedModel.model_read, _ = super()._initialize_simulation()
            model = copy.deepcopy(CopiedModel.model_read)
            return model, mujoco.MjData(model)

    return CopiedModel


class MetaWorld:
    """One task, or the tasks of a benchmark; the seed of an initial state selects the task.

    Args:
        task: one of the 50 names such as "reach-v3", several joined by "+", or MT10, MT25, MT50, ML10. In ML10 the
            goal is hidden, and held-out states are of its five test tasks.
        chunk: control steps (80 Hz) per decision, executed open loop.
        max_steps: control steps after which an episode is cut.
        image_size: pixels a side of the image of Meta-World's camera "corner2"; 0: no images.
        dense_reward: coefficient of Meta-World's own reward of every control step, beside 1 for the success.
    """

    def __init__(
        self, task: str, chunk: int = 1, max_steps: int = LONGEST, image_size: int = 0, dense_reward: float = 0
    ):
        self._classes, benchmarks, test_tasks = list_tasks()
        names = benchmarks.get(task, task.split("+"))
        if unknown := [name for name in names if name not in self._classes]:
            raise ValueError(f"sim.task={unknown[0]!r} is none of {', '.join(benchmarks)}, {', '.join(self._classes)}")
        if chunk < 1 or not 1 <= max_steps <= LONGEST or image_size < 0:
            raise ValueError(f"sim.chunk must be at least 1, sim.max_steps 1 to {LONGEST}, sim.image_size at least 0")
        self.task, self.chunk, self.max_steps = task, chunk, max_steps
        self.image_size, self.dense_reward = image_size, dense_reward
        self.tasks = tuple(names)
        self.held_out_tasks = tuple(test_tasks) if task == "ML10" else self.tasks
        self.sees_goal = task != "ML10"
        self._free: dict[str, list[Any]] = {}  # environments without an episode, by task
        self._experts: dict[str, Any] = {}

    @property
    def name(self) -> str:
        return f"metaworld-{self.task}"

    def make_env(self) -> gymnasium.Env:
        return MetaWorldEnv(self)

    def sizes(self) -> dict[str, Any]:
        return sizes(self.chunk)

    def contract(self) -> dict[str, Any]:
        options = ("task", "chunk", "max_steps", "image_size", "dense_reward", "sees_goal")
        images = {"renderer": "ray", "camera": "corner2"} if self.image_size else {"renderer": None}
        versions = {package: version(package) for package in ("metaworld", "mujoco")}
        return {"sim": self.name, **{name: getattr(self, name) for name in options}, **images, **versions}

    def expert(self, env: MetaWorldEnv) -> np.ndarray:
        """The scripted expert's next action, float32 [1, 4]; it plans single control steps."""
        if self.chunk != 1:
            raise ValueError(f"Meta-World's experts plan single control steps: set sim.chunk=1, not {self.chunk}")
        name = env.unwrapped.playing  # type: ignore[attr-defined]
        if name not in self._experts:
            from metaworld.policies import ENV_POLICY_MAP

            self._experts[name] = ENV_POLICY_MAP[name]()
        action = self._experts[name].get_action(env.unwrapped.full_state)  # type: ignore[attr-defined]
        return np.clip(np.asarray(action, np.float32), -1, 1)[None]

    def borrow(self, name: str) -> Any:
        """An environment of a task; give it back with `give_back`."""
        if self._free.get(name):
            return self._free[name].pop()
        env = derive_copying_class(self._classes[name])()
        env._partially_observable = False  # the goal is hidden by us, as the experts see it
        env.__dict__.pop("sawyer_observation_space", None)
        env._freeze_rand_vec, env.seeded_rand_vec, env._set_task_called = False, True, True
        return env

    def give_back(self, name: str, env: Any) -> None:
        """Keep an environment for the next episode of its task; its state is that episode's seed's."""
        self._free.setdefault(name, []).append(env)


class MetaWorldEnv(gymnasium.Env):
    """One episode after the other, each of its seed's task.

    Observations: "proprio" float32 [39], "instruction", and "image" uint8 [S, S, 3] where asked for. An episode
    terminates at the first success.

    Args:
        world: with the options.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": CONTROL_HZ}
    render_mode = "rgb_array"

    def __init__(self, world: MetaWorld):
        self.world = world
        parts: dict[str, Any] = {
            "proprio": spaces.Box(-np.inf, np.inf, (STATE,), np.float32),
            "instruction": spaces.Text(max_length=60, charset="abcdefghijklmnopqrstuvwxyz "),
        }
        if world.image_size:
            parts["image"] = spaces.Box(0, 255, (world.image_size, world.image_size, 3), np.uint8)
        self.observation_space = spaces.Dict(parts)
        self.action_space = spaces.Box(-1, 1, (world.chunk, 4), np.float32)
        self.playing = ""
        self.full_state = np.zeros(STATE)  # with the goal
        self._env: Any = None
        self._camera: UprightCamera | None = None
        self._steps = 0

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        seed = int(self.np_random.integers(2**31)) if seed is None else seed
        if self._env is not None:
            self.world.give_back(self.playing, self._env)
        self.playing = task_of(seed, self.world.tasks, self.world.held_out_tasks)
        self._env, self._camera, self._steps = self.world.borrow(self.playing), None, 0
        self._env.np_random = np.random.default_rng(seed)
        self.full_state, _ = self._env.reset()
        return self._observe(), {"task": self.playing}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        reward, executed, success = 0.0, 0, False
        for part in np.clip(np.asarray(action, np.float64), -1, 1):
            with refuse_divergence(self._env.data):
                self.full_state, dense, _, _, report = self._env.step(part)
            self._steps, executed = self._steps + 1, executed + 1
            success = report["success"] > 0
            reward += self.world.dense_reward * float(dense)
            if success or self._steps >= self.world.max_steps:
                break
        info = {"task": self.playing, "executed": executed, "scores": {"success": float(success)}}
        return self._observe(), reward + success, success, not success and self._steps >= self.world.max_steps, info

    def _observe(self) -> dict[str, Any]:
        state = self.full_state.astype(np.float32)
        if not self.world.sees_goal:
            state[-3:] = 0
        observation: dict[str, Any] = {"proprio": state, "instruction": self.playing[:-3].replace("-", " ")}
        if self.world.image_size:
            observation["image"] = self.render(self.world.image_size)
        return observation

    def render(self, size: int = 256) -> np.ndarray:  # type: ignore[override]
        """Image of the camera "corner2", uint8 [size, size, 3]."""
        if self._camera is None or self._camera.size != size:
            self._camera = UprightCamera(self._env.model, "corner2", size)
        return self._camera.draw(self._env.data)

    def close(self) -> None:
        """Forget the simulation of an episode that may have failed; the one that ends well is given back by `reset`."""
        self._env = None
