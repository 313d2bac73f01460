"""Vector environment whose environments are stepped and drawn in other processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from sims.host.shared import WHOLE
from sims.host.spaces import build_space
from sims.workers.merge import join_reports
from sims.workers.pool import EnvironmentPool
from sims.workers.process import Program, SimulatorError


class WorkerVectorEnv(VectorEnv):
    """num_envs environments in equal parts, one part a process; observations come through shared memory.

    When a process dies or hangs, the episodes that its environments were playing are truncated with
    `infos["error"]`, and it is started again at their next reset. One that dies in a reset is started again at once; a
    second death is raised. That needs autoreset disabled, where every episode
    begins from a seed.

    Args:
        program: what the processes run.
        num_envs: in all of them.
        workers: number of processes.
    """

    def __init__(self, program: Program, num_envs: int, workers: int):
        self.num_envs = num_envs
        self.pool = pool = EnvironmentPool(program, num_envs, workers)
        description = pool.made
        self.single_observation_space = pool.observation_space
        self.single_action_space = build_space(description["action"])
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.metadata = {
            **description["metadata"],
            "autoreset_mode": AutoresetMode(description["metadata"]["autoreset_mode"]),
        }
        self.render_mode, self._repr = description["render_mode"], description["repr"]
        if description["step_callback"]:
            # called after each control step with the indices of the environments that moved
            self.step_callback: Callable[[np.ndarray], None] | None = None
        self._draws_ends = False
        self._terminated, self._truncated = np.zeros(num_envs, bool), np.zeros(num_envs, bool)
        self._resting = np.zeros(num_envs, bool)  # ended by a process that was since started again for others
        self._lost = np.full(num_envs, None, object)  # why an episode ended in another's reset, not yet reported
        self._replies: list[dict[str, Any]] = [{"rest": {}, "infos": {}} for _ in pool.parts]  # the last ones
        self._order: list[str] = []  # of the parts of an observation
        self._waiting: list[int] = []

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset environment i to the initial state of seed[i]; `options={"reset_mask": bool [n]}` resets only some."""
        mask = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, bool)), bool)
        if isinstance(seed, int | np.integer):
            seed = [int(seed) + i for i in range(self.num_envs)]
        workers = [k for k, rows in enumerate(self.pool.parts) if mask[rows].any()]
        for k in workers:
            self._send_reset(k, seed, mask)
        for flags in (self._resting, self._terminated, self._truncated):
            flags &= ~mask
        self._lost[mask] = None
        replies = self._receive(workers)
        dead = [k for k in workers if k not in replies]
        for k in dead:
            self._lose_others(k, mask)
            self._send_reset(k, seed, mask)
        replies |= self._receive(dead)
        if failure := next((self.pool.failures[k] for k in dead if k not in replies), None):
            raise SimulatorError(
                f"{failure}, in a reset, for the second time; mend the simulator or leave out its seed"
            )
        infos = [replies[k]["infos"] for k in workers]
        return self._observation(), join_reports(infos, [self.pool.parts[k] for k in workers], self.num_envs)

    def _send_reset(self, k: int, seed: Any, mask: np.ndarray) -> None:
        """Ask a process to reset those of its environments that the mask names, or all where it has to be started."""
        rows = self.pool.parts[k]
        whole = bool(mask[rows].all())
        if self.pool.failures[k] is not None:
            self.pool.restart(k)
            whole = True
        seeds = None if seed is None else list(seed[rows])
        self.pool.send(k, "reset", seed=seeds, mask=None if whole else mask[rows])

    def _lose_others(self, k: int, mask: np.ndarray) -> None:
        """Note the episodes that a process was playing when it died in the reset of its other environments."""
        rows = self.pool.parts[k]
        others = ~mask[rows]
        playing = others & ~(self._terminated[rows] | self._truncated[rows])
        self._lost[rows][playing] = self.pool.failures[k]
        self._resting[rows] |= others

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: Any) -> None:
        """Send the actions [n, ...] and return at once; `step_wait` returns what followed."""
        actions = np.asarray(actions)
        watch = getattr(self, "step_callback", None) is not None
        self._waiting = self.pool.running
        for k in self._waiting:
            self.pool.send(k, "step", actions=actions[self.pool.parts[k]], watch=watch)

    def step_wait(self) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Wait for the step of `step_async`: observations, rewards, terminated, truncated, infos."""
        replies = self._receive(self._waiting)
        rewards = np.zeros(self.num_envs, np.float64)
        terminated, truncated, reports = self._terminated.copy(), self._truncated.copy(), []
        for k, rows in enumerate(self.pool.parts):
            if k not in replies:
                reports.append(self._end_with_error(k, truncated))
                continue
            resting, reply = self._resting[rows], replies[k]
            rewards[rows] = np.where(resting, 0.0, reply["rewards"])
            terminated[rows] = np.where(resting, terminated[rows], reply["terminated"])
            truncated[rows] = np.where(resting, truncated[rows], reply["truncated"])
            reports.append(reply["infos"])
        infos = join_reports(reports, self.pool.parts, self.num_envs)
        self._report_lost(truncated, infos)
        self._terminated, self._truncated = terminated.copy(), truncated.copy()
        return self._observation(), rewards, terminated, truncated, infos

    def _receive(self, asked: Sequence[int]) -> dict[int, dict[str, Any]]:
        replies = self.pool.receive(asked, self._report_move)
        for k, reply in replies.items():
            self._replies[k], self._order = reply, reply.get("order", self._order)
        failure = next(filter(None, self.pool.failures), None)
        if failure is not None and self.metadata["autoreset_mode"] is not AutoresetMode.DISABLED:
            raise SimulatorError(f"{failure}; only with sim.autoreset=disabled does a run go on after that")
        return replies

    def _report_move(self, first: int, envs: list[int]) -> None:
        self.step_callback(np.asarray(envs) + first)  # type: ignore[misc]

    def _end_with_error(self, k: int, truncated: np.ndarray) -> dict[str, Any]:
        """The infos of a part whose process died; the episodes that it was playing are truncated."""
        rows = self.pool.parts[k]
        playing = ~(self._terminated[rows] | self._truncated[rows])
        truncated[rows] |= playing
        self._resting[rows] = True
        errors = np.full(len(playing), None, object)
        errors[playing] = self.pool.failures[k]
        return {name: value for name, value in self._replies[k]["infos"].items() if name == "task"} | {"error": errors}

    def _report_lost(self, truncated: np.ndarray, infos: dict[str, Any]) -> None:
        """Truncate the episodes that ended in a reset of others, once, with the reason."""
        lost = np.array([failure is not None for failure in self._lost])
        if lost.any():
            truncated |= lost
            errors = infos.get("error", np.full(self.num_envs, None, object))
            infos["error"] = np.where(lost, self._lost, errors)
            self._lost[:] = None

    def _observation(self) -> Any:
        """Copies of the shared arrays, as rows of an observation are kept while the environments go on."""
        if not self._order:
            return self.pool.arrays[WHOLE].copy()
        rest = join_reports([reply["rest"] for reply in self._replies], self.pool.parts, self.num_envs)
        arrays = self.pool.arrays
        return {name: arrays[name].copy() if name in arrays else _fill(rest[name]) for name in self._order}

    def expert(self) -> np.ndarray:
        """The scripted expert's next chunk for every environment, float32 [n, chunk, A]; zeros where a process died."""
        workers = self.pool.running
        for k in workers:
            self.pool.send(k, "expert")
        out = np.zeros(self.action_space.shape, np.float32)  # type: ignore[arg-type]
        for k, actions in self.pool.receive(workers).items():
            out[self.pool.parts[k]] = actions
        return out

    def render(self, i: int = 0, *arguments: Any) -> np.ndarray:  # type: ignore[override]
        """The simulator's own image of environment i."""
        k, row = self.pool.find(i)
        return self.pool.ask(k, "render", arguments=[row, *arguments])

    @property
    def draws_ends(self) -> bool:
        """Whether cameras also look at an episode's terminal state; simulators without cameras ignore it."""
        return self._draws_ends

    @draws_ends.setter
    def draws_ends(self, value: bool) -> None:
        self._draws_ends = value
        for k in range(len(self.pool.parts)):
            self.pool.ask(k, "set", name="draws_ends", value=value)

    def state_dict(self) -> dict[str, Any]:
        """State of the environments, a part for every process."""
        try:
            return {"workers": [_to_tensors(self.pool.ask(k, "state_dict")) for k in range(len(self.pool.parts))]}
        except SimulatorError as error:
            raise NotImplementedError(f"{self} cannot be saved: {error}") from error

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved state, with as many processes as saved it."""
        saved, here = len(state.get("workers", ())), len(self.pool.parts)
        if saved != here:
            raise ValueError(f"the saved simulator has sim.workers={saved}, this one {here}; set it to {saved}")
        for k, part in enumerate(state["workers"]):
            self.pool.ask(k, "load_state_dict", state=part)

    def close_extras(self, **kwargs: Any) -> None:
        if hasattr(self, "pool"):
            self.pool.close()

    def __repr__(self) -> str:
        return f"{self._repr} in {len(self.pool.parts)} processes"


def _fill(rows: Any) -> Any:
    """Empty text where no observation was made yet."""
    return type(rows)("" if row is None else row for row in rows) if isinstance(rows, list | tuple) else rows


def _to_tensors(state: Any) -> Any:
    if isinstance(state, np.ndarray):
        return torch.from_numpy(state)
    if isinstance(state, dict):
        return {name: _to_tensors(part) for name, part in state.items()}
    return type(state)(_to_tensors(part) for part in state) if isinstance(state, list | tuple) else state
