"""Main program of a simulator's process: answers the requests of the trainer until the connection ends."""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from sims.host.build import build
from sims.host.shared import map_arrays, write_rows
from sims.host.spaces import describe_space
from sims.host.vector import GuestVectorEnv
from sims.host.wire import PROTOCOL, pack, unpack

_PLAIN = (bool, int, float, str)


class Host:
    """One simulator and some of its environments. A method `do_x` answers the request {"do": "x", argument: value}.

    Args:
        connection: to the trainer.
        memory: descriptor of the file with the observations of all processes.
    """

    def __init__(self, connection: Connection, memory: int):
        self.connection, self.memory = connection, memory
        self.sim: Any = None
        self.env: Any = None
        self.first, self.arrays = 0, {}

    def serve(self) -> None:
        """Answer requests until the trainer closes the connection or asks to close."""
        while True:
            try:
                request = unpack(self.connection.recv_bytes())
            except (EOFError, OSError):
                return
            self._answer(request)
            if request["do"] == "close":
                return

    def _answer(self, request: dict[str, Any]) -> None:
        name = request.pop("do")
        try:
            reply = pack({"ok": getattr(self, f"do_{name}")(**request)})
        except Exception as error:
            lines = traceback.format_exception_only(type(error), error)
            reply = pack({"error": " ".join(lines[-1].split()), "trace": traceback.format_exc()})
        request["do"] = name
        self.connection.send_bytes(reply)

    def do_hello(self) -> dict[str, Any]:
        return {"protocol": PROTOCOL, "python": sys.executable, "modules": sorted(sys.modules)}

    def do_release_stderr(self, descriptor: int) -> None:
        """Write to the trainer's stderr from now on, where the start wrote to a file."""
        os.dup2(descriptor, 2)
        os.close(descriptor)

    def do_build(self, description: Any) -> dict[str, Any]:
        """Build the simulator; returns name, sizes or their refusal, contract, tasks, states, expert or not."""
        self.sim = build(description)
        try:
            sizes, refusal = self.sim.sizes(), None
        except ValueError as error:  # spaces that no control policy has; other policies may read them
            sizes, refusal = {}, str(error)
        report = {"name": self.sim.name, "sizes": sizes, "refusal": refusal, "contract": self.sim.contract()}
        tasks = {name: list(getattr(self.sim, name, [])) for name in ("tasks", "held_out_tasks")}
        return {**report, **tasks, "states": getattr(self.sim, "states", None), "expert": hasattr(self.sim, "expert")}

    def do_make(self, num_envs: int) -> dict[str, Any]:
        """Make environments; returns their spaces and what else a vector environment states."""
        self.close_env()
        if hasattr(self.sim, "make"):
            self.env = self.sim.make(num_envs)
        else:
            self.env = GuestVectorEnv(self.sim.make_env, num_envs)
        mode = self.env.metadata.get("autoreset_mode")
        metadata = {k: v for k, v in self.env.metadata.items() if isinstance(v, (*_PLAIN, list))}
        return {
            "observation": describe_space(self.env.single_observation_space),
            "action": describe_space(self.env.single_action_space),
            "metadata": {**metadata, "autoreset_mode": getattr(mode, "value", mode)},
            "render_mode": self.env.render_mode,
            "step_callback": hasattr(self.env, "step_callback"),
            "repr": repr(self.env),
        }

    def do_map(self, first: int, layout: list, size: int) -> None:
        """Write observations to the shared memory; the environments here are number `first` and the following."""
        self.first, self.arrays = first, map_arrays(self.memory, layout, size)

    def do_reset(self, seed: Any, mask: Any) -> dict[str, Any]:
        options = None if mask is None else {"reset_mask": mask}
        observation, infos = self.env.reset(seed=seed, options=options)
        return {"rest": write_rows(self.arrays, self.first, observation), "infos": infos, "order": _names(observation)}

    def do_step(self, actions: np.ndarray, watch: bool) -> dict[str, Any]:
        """Take one decision; `watch` reports every control step to the trainer, which may render in between."""
        if hasattr(self.env, "step_callback"):
            self.env.step_callback = self._report_move if watch else None
        observation, rewards, terminated, truncated, infos = self.env.step(actions)
        rest = write_rows(self.arrays, self.first, observation)
        flags = {"terminated": np.asarray(terminated), "truncated": np.asarray(truncated)}
        return {"rest": rest, "rewards": np.asarray(rewards), **flags, "infos": infos}

    def _report_move(self, envs: np.ndarray) -> None:
        self.connection.send_bytes(pack({"moved": [int(i) for i in envs]}))
        while (request := unpack(self.connection.recv_bytes()))["do"] != "go_on":
            self._answer(request)

    def do_render(self, arguments: list) -> np.ndarray:
        return np.asarray(self.env.render(*arguments))

    def do_expert(self) -> np.ndarray:
        """The scripted expert's next chunk for every environment; zeros where one that is asked alone has ended."""
        if not isinstance(self.env, GuestVectorEnv):
            return np.asarray(self.sim.expert(self.env), np.float32)
        out = np.zeros(self.env.action_space.shape, np.float32)
        for i in np.flatnonzero(~self.env.over):
            out[i] = self.sim.expert(self.env.envs[i])
        return out

    def do_set(self, name: str, value: Any) -> None:
        """Set an attribute that the environments have."""
        if hasattr(self.env, name):
            setattr(self.env, name, value)

    def do_state_dict(self) -> Any:
        if not hasattr(self.env, "state_dict"):
            raise NotImplementedError(f"{self.env} has no state_dict")
        return self.env.state_dict()

    def do_load_state_dict(self, state: Any) -> None:
        self.env.load_state_dict(_to_tensors(state))

    def do_close(self) -> None:
        self.close_env()

    def close_env(self) -> None:
        if self.env is not None:
            self.env.close()
        self.env = None


def _names(observation: Any) -> list[str]:
    return list(observation) if isinstance(observation, dict) else []


def _to_tensors(state: Any) -> Any:
    """Arrays as torch tensors where the simulator imports torch; a simulator without it keeps arrays."""
    torch = sys.modules.get("torch")
    if isinstance(state, np.ndarray) and torch is not None:
        return torch.from_numpy(state)
    if isinstance(state, dict):
        return {name: _to_tensors(part) for name, part in state.items()}
    return type(state)(_to_tensors(part) for part in state) if isinstance(state, (list, tuple)) else state


def main(connection: int, memory: int, parent: int, ending: str) -> None:
    """Serve, and end with all that the simulator started: threads, processes, daemons.

    Args:
        connection: descriptor of the connection to the trainer.
        memory: descriptor of the file with the observations of all processes.
        parent: number of the trainer's process, without which this one ends, also where it hangs in a step.
        ending: file of `mmrl.distributed.ending`, of which this Python has no package.
    """
    spec: Any = importlib.util.spec_from_file_location("ending", ending)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.adopt_orphans()
    module.end_with_parent(parent)
    try:
        Host(Connection(connection), memory).serve()
    finally:
        module.end_tree()
