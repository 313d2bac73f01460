"""One interface over gymnasium's three autoreset modes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import create_empty_array


@dataclass(frozen=True, slots=True)
class EpisodeEnd:
    """End of an episode of one environment."""

    terminated: bool  # False: truncated
    following: dict[str, Any]  # raw observation after the last decision, before any reset
    scores: Mapping[str, float]  # what the simulator reported
    error: str | None = None  # why the simulator failed; reward and observation are then undefined


@dataclass(frozen=True, slots=True)
class EnvStep:
    """Result of one step of the acting environments: rewards, executed control steps, episode ends."""

    rewards: list[float]  # of the environments that acted, in their order
    executed: list[int] | None  # control steps of the decisions that were played, where the simulator says so
    ends: dict[int, EpisodeEnd]  # by environment, of the episodes that ended


class AutoresetAdapter:
    """Step a vector environment and reset every finished environment, in each of gymnasium's autoreset modes.

    next_step: the step after the end only resets that environment and ignores its action.
    same_step: the returned observation is that of the new episode; the final one is in the infos.
    disabled: the finished environments are reset here.

    A simulator may report, in `infos`, "executed" int [n] control steps of the decision, "scores" {name: float [n]}
    and "error" [n], a message or True in a truncated environment that failed.
    """

    def __init__(self, venv: VectorEnv):
        mode = venv.metadata.get("autoreset_mode")
        if not isinstance(mode, AutoresetMode):
            raise ValueError(f"{venv} does not say its autoreset mode in metadata['autoreset_mode'], got {mode!r}")
        self.venv, self.mode = venv, mode
        self.acting = np.ones(venv.num_envs, dtype=bool)  # environments that take a decision in the next step
        self._everyone = list(range(venv.num_envs))
        self._observations: Any = None
        self._actions = create_empty_array(venv.single_action_space, venv.num_envs, fn=np.zeros)

    def reset(self, seeds: Sequence[int]) -> None:
        self._observations, _ = self.venv.reset(seed=list(seeds))  # type: ignore[arg-type]
        self.acting[:] = True
        self._check_finite()

    @property
    def acting_envs(self) -> list[int]:
        """Indices of the environments that take a decision in the next step."""
        return self._everyone if self.acting.all() else np.flatnonzero(self.acting).tolist()

    def observation(self, env: int) -> dict[str, Any]:
        """The raw observation on which this environment acts next."""
        return raw_observation(self._observations, env)

    def read_observations(self, envs: Sequence[int]) -> dict[str, Any]:
        """The raw observations of some environments: arrays [n, ...], or lists of what no array holds."""
        observations = self._observations if isinstance(self._observations, Mapping) else {"state": self._observations}
        if len(envs) == self.venv.num_envs:
            return dict(observations)
        return {
            name: part[envs] if isinstance(part, np.ndarray) else [part[w] for w in envs]
            for name, part in observations.items()
        }

    def step(self, envs: Sequence[int], outputs: Sequence[Any], seed: Callable[[int], int]) -> EnvStep:
        """Take one decision in each of the acting environments `envs`.

        `seed(i)` seeds the next episode of environment i in mode disabled, where we reset.
        """
        self._actions[envs if len(envs) < len(self._everyone) else ...] = outputs  # type: ignore[index]
        observations, rewards, terminated, truncated, infos = self.venv.step(self._actions)
        ended = (terminated | truncated) & self.acting
        executed = [int(infos["executed"][w]) for w in envs] if "executed" in infos else None
        ends: dict[int, EpisodeEnd] = {}
        if ended.any():
            final, reports = observations, infos
            if self.mode is AutoresetMode.SAME_STEP:
                final, reports = infos["final_obs"], infos.get("final_info", {})
            ends = {int(w): _end(int(w), bool(terminated[w]), final, reports) for w in np.flatnonzero(ended)}
            if self.mode is AutoresetMode.DISABLED:
                seeds = [seed(w) if ended[w] else 0 for w in range(len(ended))]
                observations, _ = self.venv.reset(seed=seeds, options={"reset_mask": ended})  # type: ignore[arg-type]
        if self.mode is AutoresetMode.NEXT_STEP:
            self.acting = ~ended
        self._observations = observations
        self._check_finite()
        values = rewards.tolist()
        return EnvStep(values if len(envs) == len(values) else [values[w] for w in envs], executed, ends)

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next step depends on, as tensors; refused by simulators that cannot be saved."""
        if not hasattr(self.venv, "state_dict"):
            raise NotImplementedError(f"{self.venv} has no state_dict")
        observations = _plain(self._observations)
        return {"venv": self.venv.state_dict(), "seen": observations, "acting": torch.from_numpy(self.acting.copy())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""
        self.venv.load_state_dict(state["venv"])  # type: ignore[attr-defined]
        self._observations, self.acting = _restore_observations(state["seen"]), state["acting"].numpy().copy()

    def _check_finite(self) -> None:
        observations = self._observations
        for name, array in observations.items() if isinstance(observations, Mapping) else [("state", observations)]:
            if getattr(array, "dtype", np.dtype(object)).kind == "f" and not np.isfinite(array).all():
                raise FloatingPointError(
                    f"{self.venv} gave observation {name!r} with numbers that are not finite; "
                    "a simulator must end such an environment with infos['error']"
                )


def raw_observation(observations: Any, env: int) -> dict[str, Any]:
    """One environment's part of a batched observation, by name; an unnamed one is called "state"."""
    if isinstance(observations, Mapping):
        return {name: part[env] for name, part in observations.items()}
    return {"state": observations[env]}


def _plain(observations: Any) -> Any:
    """Batched observations as tensors, text and containers of them."""
    if isinstance(observations, np.ndarray):
        if observations.dtype.kind not in "fiub":
            raise NotImplementedError(f"observations of {observations.dtype} cannot be saved")
        return torch.from_numpy(observations.copy())
    if isinstance(observations, Mapping):
        return {name: _plain(part) for name, part in observations.items()}
    if isinstance(observations, (list, tuple)):
        return type(observations)(_plain(part) for part in observations)
    if observations is None or isinstance(observations, (str, bool, int, float)):
        return observations
    raise NotImplementedError(f"observations of {type(observations).__name__} cannot be saved")


def _restore_observations(saved: Any) -> Any:
    """Restore batched observations from the plain values of `_plain`."""
    if isinstance(saved, torch.Tensor):
        return saved.numpy().copy()
    if isinstance(saved, Mapping):
        return {name: _restore_observations(part) for name, part in saved.items()}
    return type(saved)(_restore_observations(part) for part in saved) if isinstance(saved, (list, tuple)) else saved


def _end(env: int, terminated: bool, final: Any, reports: Mapping[str, Any]) -> EpisodeEnd:
    """Final observation, scores and error of an episode that ended."""
    # apart from the buffers, which some vector environments use again
    following = {
        name: part.copy() if isinstance(part, np.ndarray) else part
        for name, part in raw_observation(final, env).items()
    }
    columns = reports.get("scores", {})  # gymnasium adds one named _name per name, which says whose entries are set
    scores = {name: float(column[env]) for name, column in columns.items() if not name.startswith("_")}
    error = reports["error"][env] if "error" in reports else None
    if error and not isinstance(error, str):
        error = "the simulator reported an error"
    return EpisodeEnd(terminated, following, scores, error or None)
