"""The vector environment: chunks of actions in, pictures and outcomes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from mmrl.rng import derived_rng
from sims.render import Renderer
from sims.tabletop.scene import CONTROL_HZ
from sims.tabletop.task import Start, TabletopTask
from sims.tabletop.worlds import Worlds

_CAMERA = "front"
_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,!?'-"


class TabletopVectorEnv(VectorEnv):
    """n worlds of one task. A decision is a chunk of control steps, played open loop until the episode ends.

    A world that ended keeps still (not stepped, not drawn) and repeats its flags until the next reset.
    `infos`: "executed" int [n] control steps of this decision, "scores" float [n] per event (valid for worlds that
    ended), "error" bool [n] where the simulation diverged.
    """

    def __init__(
        self, task: TabletopTask, worlds: Worlds, renderer: Renderer, image_size: int, chunk: int, max_decisions: int
    ):
        self.metadata = {
            "render_modes": ["rgb_array"],
            "render_fps": int(CONTROL_HZ),
            "autoreset_mode": AutoresetMode.DISABLED,
        }
        self.render_mode = "rgb_array"
        self.task, self.worlds, self.renderer = task, worlds, renderer
        self.image_size, self.chunk, self.max_decisions = image_size, chunk, max_decisions
        self.num_envs = n = worlds.batch.nsim
        self._declare_spaces()
        self.goal = np.zeros(n, np.int64)
        self.decisions = np.zeros(n, np.int64)
        self.terminated, self.truncated = np.zeros(n, bool), np.zeros(n, bool)
        self.error = np.zeros(n, bool)
        self.scores = {event: np.zeros(n, np.float64) for event in task.events}
        self.instructions = [""] * n
        self._images = np.zeros((n, image_size, image_size, 3), np.uint8)
        self._ready = False
        self.watch: Callable[[np.ndarray], None] | None = None  # told after each control step which worlds moved

    def _declare_spaces(self) -> None:
        size = self.image_size
        self.single_observation_space = spaces.Dict(
            {
                "image": spaces.Box(0, 255, (size, size, 3), np.uint8),
                "proprio": spaces.Box(-np.inf, np.inf, (13,), np.float32),
                "instruction": spaces.Text(max_length=200, charset=_CHARACTERS),
            }
        )
        self.single_action_space = spaces.Box(-1, 1, (self.chunk, 3), np.float32)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    @property
    def renderer_name(self) -> str:
        return self.renderer.name

    @property
    def live(self) -> np.ndarray:
        """Worlds whose episode goes on, bool [n]."""
        return ~(self.terminated | self.truncated)

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin world i in the state that seed[i] stands for; `options={"reset_mask": bool [n]}` begins only some."""
        seeds = self._seeds(seed)
        chosen = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, bool)), bool)
        if not self._ready and not chosen.all():
            raise ValueError("the first reset must begin all worlds: leave options['reset_mask'] out")
        ids = np.flatnonzero(chosen)
        self.begin(ids, [self.task.start(derived_rng(self.task.name, seeds[i])) for i in ids])
        # the attempts of a group share their seed: their first picture is drawn once
        first = {seeds[i]: i for i in reversed(ids)}
        self._draw(np.array(sorted(first.values())))
        for i in ids:
            self._images[i] = self._images[first[seeds[i]]]
        return self._observation(), {}

    def _seeds(self, seed: int | Sequence[int] | None) -> list[int]:
        if seed is None:
            return [int(s) for s in np.random.SeedSequence().generate_state(self.num_envs, np.uint64)]
        if isinstance(seed, (int, np.integer)):
            return [int(seed) + i for i in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(f"reset needs one seed per world: {self.num_envs} worlds, got {len(seed)} seeds")
        return [int(s) for s in seed]

    def begin(self, ids: np.ndarray, starts: Sequence[Start]) -> None:
        """Put worlds into given initial states, without drawing them."""
        self.worlds.place(ids, starts)
        self.goal[ids] = [start.goal for start in starts]
        for i, start in zip(ids, starts):
            self.instructions[i] = start.instruction
        for column in (self.decisions, self.terminated, self.truncated, self.error, *self.scores.values()):
            column[ids] = 0
        self._ready = True

    def step(self, actions: np.ndarray) -> tuple[dict[str, Any], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Play one chunk, actions [n, chunk, 3] in [-1, 1] (clipped); rows of worlds that ended are ignored."""
        played = self.live
        actions = self._checked(actions, played)
        executed, reward = np.zeros(self.num_envs, np.int64), np.zeros(self.num_envs, np.float64)
        for k in range(self.chunk):
            ids = np.flatnonzero(self.live)
            if not ids.size:
                break
            diverged = self.worlds.control(ids, actions[ids, k])
            executed[ids] += 1
            self.error[ids[diverged]] = self.truncated[ids[diverged]] = True
            self._judge(ids[~diverged], reward)
            if self.watch is not None:
                self.watch(ids)
        self.decisions[played] += 1
        self.truncated |= played & ~self.terminated & (self.decisions >= self.max_decisions)
        # an episode cut by time is drawn once more: its value is asked for
        self._draw(np.flatnonzero(played & ~self.terminated & ~self.error))
        return self._observation(), reward, self.terminated.copy(), self.truncated.copy(), self._infos(executed)

    def _checked(self, actions: np.ndarray, played: np.ndarray) -> np.ndarray:
        actions = np.asarray(actions, np.float64)
        if not self._ready:
            raise RuntimeError("step before reset: call reset(seed=[...]) first")
        if actions.shape != (self.num_envs, self.chunk, 3):
            raise ValueError(f"actions must be {(self.num_envs, self.chunk, 3)}, got {actions.shape}")
        broken = np.flatnonzero(played & ~np.isfinite(actions).all(axis=(1, 2)))
        if broken.size:
            raise ValueError(f"the policy's actions are not finite in worlds {broken[:5].tolist()}")
        return np.clip(actions, -1, 1)

    def _judge(self, ids: np.ndarray, reward: np.ndarray) -> None:
        events = self.task.judge(self.worlds.tip[ids], self.worlds.objects[ids], self.goal[ids])
        for event, happened in events.items():
            self.scores[event][ids[happened]] = 1.0
            self.terminated[ids[happened]] = True
        reward[ids[events["success"]]] = 1.0

    def _draw(self, ids: np.ndarray) -> None:
        if ids.size:
            self._images[ids] = self.renderer.frames(self.worlds.batch, ids, _CAMERA, self.image_size)

    def _observation(self) -> dict[str, Any]:
        # copies: rows of an observation are kept in episodes while the worlds go on
        return {
            "image": self._images.copy(),
            "proprio": self.worlds.proprio,
            "instruction": list(self.instructions),
        }

    def _infos(self, executed: np.ndarray) -> dict[str, Any]:
        scores = {event: column.copy() for event, column in self.scores.items()}
        return {"executed": executed, "scores": scores, "error": self.error.copy()}

    def render(  # type: ignore[override]  # one world at a time, at a size of choice
        self, i: int = 0, size: int = 256, camera: str = "side"
    ) -> np.ndarray:
        """One world for people to look at, uint8 RGB [size, size, 3]."""
        return self.renderer.picture(self.worlds.batch, i, camera, size)

    def state_dict(self) -> dict[str, Any]:
        """All that the future depends on, as tensors and plain values."""
        arrays = {"goal": self.goal, "decisions": self.decisions, "error": self.error}
        arrays |= {"terminated": self.terminated, "truncated": self.truncated, "images": self._images}
        arrays |= {f"score_{event}": column for event, column in self.scores.items()}
        state = {name: torch.from_numpy(value.copy()) for name, value in arrays.items()}
        state |= {name: torch.from_numpy(value) for name, value in self.worlds.state_dict().items()}
        return {**state, "instructions": list(self.instructions)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state, bit for bit."""
        if len(state["goal"]) != self.num_envs:
            raise ValueError(f"the saved simulator has {len(state['goal'])} worlds, this one {self.num_envs}")
        self.worlds.load_state_dict({name: state[name].numpy() for name in ("physics", "setpoint")})
        self.goal, self.decisions, self.error = (state[k].numpy().copy() for k in ("goal", "decisions", "error"))
        self.terminated, self.truncated = state["terminated"].numpy().copy(), state["truncated"].numpy().copy()
        self._images = state["images"].numpy().copy()
        self.scores = {event: state[f"score_{event}"].numpy().copy() for event in self.task.events}
        self.instructions = list(state["instructions"])
        self._ready = True

    def close_extras(self, **kwargs: Any) -> None:
        self.renderer.close()
