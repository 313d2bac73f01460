"""Vector environment of the tabletop simulators: chunks of actions in, images and scores out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from mmrl.core.lazy_module import torch
from sims.render import Look, Renderer
from sims.render.base import Kind
from sims.tabletop.appearance import Appearance
from sims.tabletop.pictures import CameraImages
from sims.tabletop.scene import CONTROL_HZ
from sims.tabletop.table import TabletopBatch
from sims.tabletop.task import Start, TabletopTask
from sims.tabletop.worlds import TabletopPhysics

_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,!?'-"
_KEPT = ("which", "decisions", "terminated", "truncated", "error")  # arrays with a row per environment


class TabletopVectorEnv(VectorEnv):
    """n environments, each at one of the tables. A decision is an open-loop chunk of control steps.

    An environment that ended keeps still (not stepped, not drawn) and repeats its flags until the next reset.
    `infos`: "executed" int [n] control steps of this decision; "scores" float [n] per event and per dense term (valid
    for environments that ended; what an environment's task does not have is 0); "error" bool [n] where the simulation
    diverged; "task" list[str].

    Args:
        tables: one per task; every table has room for all n environments.
        starts: the initial state that a seed stands for, and the index of its table.
        image_size: pixels a side of the policy's camera.
        chunk: control steps per decision.
        gripper: whether there is a fourth action dimension, and the opening in the proprioception.
        dense_reward_weights: weight per dense term; a decision is paid weight * (term after - term before).
        observe: kinds of images that observations hold; without any nothing is drawn.
        appearance: of the looks that states come with; they are recreated from their seeds when a state is loaded.
    """

    def __init__(
        self,
        tables: Sequence[TabletopBatch],
        starts: Callable[[int], tuple[int, Start]],
        image_size: int,
        chunk: int,
        gripper: bool,
        dense_reward_weights: Mapping[str, float],
        observe: Sequence[Kind] = ("rgb",),
        appearance: Appearance | None = None,
    ):
        self.metadata = {
            "render_modes": ["rgb_array"],
            "render_fps": int(CONTROL_HZ),
            "autoreset_mode": AutoresetMode.DISABLED,
        }
        self.render_mode = "rgb_array"
        self.tables, self.starts, self.dense_reward_weights = tuple(tables), starts, dict(dense_reward_weights)
        self.image_size, self.chunk, self.appearance = image_size, chunk, appearance
        self.action_dims, self.proprio_dims = 3 + gripper, 13 + gripper
        self.num_envs = n = tables[0].physics.batch.nsim
        self.images = CameraImages(observe, n, image_size)
        self._declare_spaces()
        self.which = np.zeros(n, np.int64)
        self.decisions = np.zeros(n, np.int64)
        self.terminated, self.truncated = np.zeros(n, bool), np.zeros(n, bool)
        self.error = np.zeros(n, bool)
        columns = [name for table in tables for name in (*table.task.events, *table.task.terms)]
        self.scores = {name: np.zeros(n, np.float64) for name in dict.fromkeys(columns)}
        self.instructions = [""] * n
        self.looks: list[Look | None] = [None] * n
        self._ready = False
        self.draws_ends = False  # whether the policy's camera also looks at an episode's terminal state
        # called after each control step with the indices of the environments that moved
        self.step_callback: Callable[[np.ndarray], None] | None = None

    def _declare_spaces(self) -> None:
        self.single_observation_space = spaces.Dict(
            {
                **self.images.spaces(),
                "proprio": spaces.Box(-np.inf, np.inf, (self.proprio_dims,), np.float32),
                "instruction": spaces.Text(max_length=200, charset=_CHARACTERS),
            }
        )
        self.single_action_space = spaces.Box(-1, 1, (self.chunk, self.action_dims), np.float32)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    @property
    def table(self) -> TabletopBatch:
        """The table of a single-task simulator."""
        if len(self.tables) > 1:
            raise ValueError(f"there are {len(self.tables)} tables here, one per task: use env.tables[env.which[i]]")
        return self.tables[0]

    @property
    def task(self) -> TabletopTask:
        return self.table.task

    @property
    def physics(self) -> TabletopPhysics:
        return self.table.physics

    @property
    def renderer(self) -> Renderer:
        return self.table.renderer

    @property
    def renderer_name(self) -> str:
        return self.tables[0].renderer.name

    @property
    def live(self) -> np.ndarray:
        """Whether the episode of each environment goes on, bool [n]."""
        return ~(self.terminated | self.truncated)

    def at(self, table: int, ids: np.ndarray) -> np.ndarray:
        """Those of the environments that are at a table."""
        return ids if len(self.tables) == 1 else ids[self.which[ids] == table]

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Reset environment i to the initial state of seed[i]; `options={"reset_mask": bool [n]}` resets only some."""
        seeds = self._seeds(seed)
        task_arguments = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, bool)), bool)
        if not self._ready and not task_arguments.all():
            raise ValueError("the first reset must begin all environments: leave options['reset_mask'] out")
        ids = np.flatnonzero(task_arguments)
        mine = [seeds[i] for i in ids.tolist()]
        starts = {seed: self.starts(seed) for seed in dict.fromkeys(mine)}
        self.begin(ids, [starts[seed][1] for seed in mine], [starts[seed][0] for seed in mine])
        if self.images.kinds:
            # the attempts of a group share their seed: their first image is drawn once
            first = dict(zip(reversed(mine), reversed(ids.tolist())))
            self._draw(np.array(sorted(first.values())))
            self.images.copy_rows(ids, np.array([first[seed] for seed in mine]))
        return self._observation(), {"task": self._tasks()}

    def _seeds(self, seed: int | Sequence[int] | None) -> list[int]:
        if seed is None:
            return [int(s) for s in np.random.SeedSequence().generate_state(self.num_envs, np.uint64)]
        if isinstance(seed, (int, np.integer)):
            return [int(seed) + i for i in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(
                f"reset needs one seed per environment: {self.num_envs} environments, got {len(seed)} seeds"
            )
        return [int(s) for s in seed]

    def begin(self, ids: np.ndarray, starts: Sequence[Start], which: Sequence[int] | None = None) -> None:
        """Set environments to given initial states, at given tables (default the first), without rendering."""
        self.which[ids] = 0 if which is None else which
        task_arguments = dict(zip(ids.tolist(), starts))
        for t, table in enumerate(self.tables):
            part = self.at(t, ids)
            table.begin(part, [task_arguments[i] for i in part.tolist()])
        for i, start in task_arguments.items():
            self.instructions[i], self.looks[i] = start.instruction, start.appearance
        for column in (self.decisions, self.terminated, self.truncated, self.error, *self.scores.values()):
            column[ids] = 0
        self._measure(ids)
        self._ready = True

    def step(self, actions: np.ndarray) -> tuple[dict[str, Any], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Play one chunk, actions [n, chunk, A] in [-1, 1] (clipped); rows of ended environments are ignored."""
        played = self.live
        actions = self._check_actions(actions, played)
        executed, reward = np.zeros(self.num_envs, np.int64), np.zeros(self.num_envs, np.float64)
        ids = np.flatnonzero(played)
        for k in range(self.chunk):
            if not ids.size:
                break
            executed[ids] += 1
            ended = False
            for t in range(len(self.tables)):
                part = self.at(t, ids)
                if part.size:
                    ended |= self._control(self.tables[t], part, actions[part, k], reward)
            if self.step_callback is not None:
                self.step_callback(ids)
            if ended:
                ids = np.flatnonzero(self.live)
        self.decisions[played] += 1
        limit = np.array([table.max_decisions for table in self.tables])[self.which]
        self.truncated |= played & ~self.terminated & (self.decisions >= limit)
        reward += self._measure(np.flatnonzero(played & ~self.error))
        # an episode cut by time is drawn once more: its value is asked for
        self._draw(np.flatnonzero(played & ~self.error & (self.draws_ends | ~self.terminated)))
        return self._observation(), reward, self.terminated.copy(), self.truncated.copy(), self._infos(executed)

    def _check_actions(self, actions: np.ndarray, played: np.ndarray) -> np.ndarray:
        actions = np.asarray(actions, np.float64)
        if not self._ready:
            raise RuntimeError("step before reset: call reset(seed=[...]) first")
        shape = (self.num_envs, self.chunk, self.action_dims)
        if actions.shape != shape:
            raise ValueError(f"actions must be {shape}, got {actions.shape}")
        broken = np.flatnonzero(played & ~np.isfinite(actions).all(axis=(1, 2)))
        if broken.size:
            raise ValueError(f"the policy's actions are not finite in environments {broken[:5].tolist()}")
        return np.clip(actions, -1, 1)

    def _control(self, table: TabletopBatch, ids: np.ndarray, actions: np.ndarray, reward: np.ndarray) -> bool:
        """One control step at one table, with its events; returns whether an episode ended."""
        diverged = table.physics.control(ids, actions)
        ended, sound = bool(diverged.any()), ids
        if ended:
            self.error[ids[diverged]] = self.truncated[ids[diverged]] = True
            sound = ids[~diverged]
        for event, happened in table.judge(sound).items():
            if happened.any():
                here, ended = sound[happened], True
                self.scores[event][here] = 1.0
                self.terminated[here] = True
                if event == "success":
                    reward[here] = 1.0
        return ended

    def _measure(self, ids: np.ndarray) -> np.ndarray:
        """Update the dense terms of some environments; returns the dense reward of the change, [n]."""
        reward = np.zeros(self.num_envs, np.float64)
        for t, table in enumerate(self.tables):
            part = self.at(t, ids)
            for name, value in table.measure(part).items() if part.size else ():
                reward[part] += self.dense_reward_weights.get(name, 0.0) * (value - self.scores[name][part])
                self.scores[name][part] = value
        return reward

    def _draw(self, ids: np.ndarray) -> None:
        for t, table in enumerate(self.tables):
            self.images.draw(table.renderer, table.physics, self.at(t, ids), self.looks)

    @property
    def proprio(self) -> np.ndarray:
        """Proprioception of the arm, float32 [n, proprio_dims]."""
        if len(self.tables) == 1:
            return self.physics.proprio[:, : self.proprio_dims]
        every = np.stack([table.physics.proprio for table in self.tables])
        return every[self.which, np.arange(self.num_envs), : self.proprio_dims]

    def _observation(self) -> dict[str, Any]:
        return {**self.images.observation(), "proprio": self.proprio, "instruction": list(self.instructions)}

    def _tasks(self) -> list[str]:
        names = [table.task.name for table in self.tables]
        return [names[t] for t in self.which]

    def _infos(self, executed: np.ndarray) -> dict[str, Any]:
        scores = {event: column.copy() for event, column in self.scores.items()}
        return {"executed": executed, "scores": scores, "error": self.error.copy(), "task": self._tasks()}

    def render(  # type: ignore[override]  # one environment at a time, at a size of choice
        self, i: int = 0, size: int = 256, camera: str = "side"
    ) -> np.ndarray:
        """Render one environment in high quality, uint8 RGB [size, size, 3]."""
        table = self.tables[self.which[i]]
        return table.renderer.render_image(table.physics.kinematics.batch, i, camera, size, self.looks[i])

    def state_dict(self) -> dict[str, Any]:
        """Complete state, as tensors and plain values."""
        arrays = {name: getattr(self, name) for name in _KEPT} | self.images.state_dict()
        arrays |= {f"score_{name}": column for name, column in self.scores.items()}
        for t, table in enumerate(self.tables):
            arrays |= {f"table{t}_{name}": value for name, value in table.state_dict().items()}
        state: dict[str, Any] = {name: torch.from_numpy(value.copy()) for name, value in arrays.items()}
        looks = [None if look is None else look.seed for look in self.looks]
        return {**state, "instructions": list(self.instructions), "looks": looks}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved state, bit for bit."""
        if len(state["decisions"]) != self.num_envs:
            raise ValueError(
                f"the saved simulator has {len(state['decisions'])} environments, this one {self.num_envs}"
            )
        arrays = {name: value.numpy() for name, value in state.items() if isinstance(value, torch.Tensor)}
        for t, table in enumerate(self.tables):
            mark = f"table{t}_"
            table.load_state_dict({k.removeprefix(mark): v for k, v in arrays.items() if k.startswith(mark)})
        for name in _KEPT:
            setattr(self, name, arrays[name].copy())
        self.images.load_state_dict(arrays)
        self.scores = {name: arrays[f"score_{name}"].copy() for name in self.scores}
        self.instructions = list(state["instructions"])
        self.looks = [None if seed is None else self.appearance.look(seed) for seed in state["looks"]]  # type: ignore[union-attr]
        self._ready = True

    def close_extras(self, **kwargs: Any) -> None:
        for table in self.tables:
            table.renderer.close()
