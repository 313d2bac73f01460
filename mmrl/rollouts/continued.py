"""Worlds that go on for ever: one view of vector environments in every autoreset mode."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import create_empty_array


@dataclass(slots=True)
class Transition:
    """What one decision led to in one world."""

    reward: float
    terminated: bool
    truncated: bool
    following: dict[str, Any] | None  # raw observation after the last decision of a life, before any reset
    error: str | None  # why the simulator gave this world up; its reward and observation mean nothing then


class ContinuedEnv:
    """Steps a vector environment and starts every finished world again, whichever way its autoreset mode asks for.

    next_step: the step after the end only resets that world, whose action is ignored: it does not act then.
    same_step: the returned observation is already that of the new life; the final one is in the infos.
    disabled: the finished worlds are reset here.

    A simulator reports the failure of one world as a truncated step with `info["error"]`.
    """

    def __init__(self, venv: VectorEnv):
        self.venv = venv
        mode = venv.metadata.get("autoreset_mode")
        if not isinstance(mode, AutoresetMode):
            raise ValueError(f"{venv} does not say its autoreset mode in metadata['autoreset_mode'], got {mode!r}")
        self.mode = mode
        self.acting = np.ones(venv.num_envs, dtype=bool)  # worlds that take a decision in the next step
        self._observations: Any = None
        self._actions = create_empty_array(venv.single_action_space, venv.num_envs, fn=np.zeros)

    def reset(self, seeds: Sequence[int]) -> None:
        self._observations, _ = self.venv.reset(seed=list(seeds))
        self.acting[:] = True
        self._check_finite()

    def observation(self, world: int) -> dict[str, Any]:
        """The raw observation on which this world acts next."""
        return raw_observation(self._observations, world)

    def step(self, worlds: Sequence[int], outputs: Sequence[Any]) -> list[Transition]:
        """Take one decision in each of `worlds`, which are those that act; what happened, in the same order."""
        self._actions[worlds] = outputs
        observations, rewards, terminated, truncated, infos = self.venv.step(self._actions)
        ended = (terminated | truncated) & self.acting
        final, reports = observations, infos
        if self.mode is AutoresetMode.SAME_STEP:
            final, reports = infos.get("final_obs"), infos.get("final_info", {})
        errors = reports.get("error")
        transitions = [
            Transition(
                float(rewards[world]),
                bool(terminated[world]),
                bool(truncated[world]),
                _copy(raw_observation(final, world)) if ended[world] else None,
                errors[world] if errors is not None and ended[world] else None,
            )
            for world in worlds
        ]
        if self.mode is AutoresetMode.DISABLED and ended.any():
            observations, _ = self.venv.reset(options={"reset_mask": ended})
        elif self.mode is AutoresetMode.NEXT_STEP:
            self.acting = ~ended
        self._observations = observations
        self._check_finite()
        return transitions

    def get_state(self) -> bytes:
        """Everything that the next step depends on; refused by simulators that cannot be saved."""
        if not hasattr(self.venv, "get_state"):
            raise NotImplementedError(f"{self.venv} has no get_state and set_state")
        return pickle.dumps((self.venv.get_state(), self._observations, self.acting))

    def set_state(self, state: bytes) -> None:
        simulator, self._observations, self.acting = pickle.loads(state)
        self.venv.set_state(simulator)

    def _check_finite(self) -> None:
        seen = self._observations
        for name, array in seen.items() if isinstance(seen, Mapping) else [("state", seen)]:
            if getattr(array, "dtype", np.dtype(object)).kind == "f" and not np.isfinite(array).all():
                raise FloatingPointError(
                    f"{self.venv} gave observation {name!r} with numbers that are not finite; "
                    "a simulator must end such a world with info['error']"
                )


def raw_observation(observations: Any, world: int) -> dict[str, Any]:
    """One world's part of a batched observation, by name; an unnamed one is called "state"."""
    if isinstance(observations, Mapping):
        return {name: part[world] for name, part in observations.items()}
    return {"state": observations[world]}


def _copy(raw: dict[str, Any]) -> dict[str, Any]:
    """Apart from the buffers, which some vector environments use again."""
    return {name: np.array(part) if isinstance(part, np.ndarray) else part for name, part in raw.items()}
