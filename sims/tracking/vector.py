"""Vector environment of the tracking simulator: the demonstration's clock, the reward, and estimated poses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorWrapper
from gymnasium.vector.utils import batch_space

from mmrl.core.errors import check_at_least
from mmrl.core.lazy_module import torch
from mmrl.core.rng import Noise
from sims.tabletop.vector import TabletopVectorEnv
from sims.tracking.demonstration import Demonstration
from sims.tracking.reward import compute_keypoint_error, compute_tracking_reward

OBSERVATION_DIMS = 17
_UNIT_M, _LAG_M = 0.1, 0.015  # units of lengths, and of the distance from the tip to its set-point
_HOME_M = (0.48, 0.0, 0.1)  # middle of where the tip is at work
_INJECTED_M = 0.1
_STREAM = np.uint64(0xD1B54A32D192ED03)  # odd, so that the streams of two decisions differ
_EPISODE = np.uint64(0x9FB21C651E98DF25)
_ARRAYS = ("clock", "far", "total", "count", "seeds")


@dataclass(frozen=True)
class PoseNoise:
    """Errors of an estimated pose: `DemonstrationTracking` describes them."""

    noise_m: float
    noise_rad: float
    episode_noise_m: float
    episode_noise_rad: float
    injected: float

    def __post_init__(self) -> None:
        check_at_least(0, "sim", **vars(self))

    def estimate(
        self,
        centre: np.ndarray,  # [n, 3] metres
        yaw: np.ndarray,  # [n] rad
        seeds: np.ndarray,  # uint64 [n], of the episodes
        decision: np.ndarray,  # int64 [n]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Estimate poses: a function of the true ones, the episode's seed and the number of the decision."""
        with np.errstate(over="ignore"):
            step = Noise(seeds + decision.astype(np.uint64) * _STREAM)
            constant = Noise(seeds ^ _EPISODE).normal(4).numpy()
        errors, draws = step.normal(4).numpy(), step.uniform(5).numpy()
        estimate = centre + self.noise_m * errors[:, :3] + self.episode_noise_m * constant[:, :3]
        turn = yaw + self.noise_rad * errors[:, 3] + self.episode_noise_rad * constant[:, 3]
        injected = draws[:, 0] < self.injected
        wrong = centre + _INJECTED_M * (2 * draws[:, 1:4] - 1)
        wrong_turn = math.pi * (2 * draws[:, 4] - 1)
        return np.where(injected[:, None], wrong, estimate), np.where(injected, wrong_turn, turn)


class TrackingVectorEnv(VectorWrapper):
    """Observations, rewards and scores of `DemonstrationTracking`; actions [n, A] of one control step.

    Args:
        env: of `TrackingScene`.
        frames: the demonstration.
        noise: of the estimated poses.
        far_m: see `DemonstrationTracking`.
        lost_m: see there.
        success_m: see there.
    """

    def __init__(
        self,
        env: TabletopVectorEnv,
        frames: Demonstration,
        noise: PoseNoise,
        far_m: float,
        lost_m: float,
        success_m: float,
    ):
        super().__init__(env)
        self.frames, self.noise = frames, noise
        self.far_m, self.lost_m, self.success_m = far_m, lost_m, success_m
        state = spaces.Box(-np.inf, np.inf, (OBSERVATION_DIMS,), np.float32)
        self.single_observation_space = spaces.Dict({"state": state, "privileged_state": state})
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.single_action_space = spaces.Box(-1, 1, (env.action_dims,), np.float32)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        n = self.num_envs
        self.clock, self.count = np.zeros(n, np.int64), np.zeros(n, np.int64)  # frame, control steps
        self.far, self.total = np.zeros(n, bool), np.zeros(n)  # whether the clock stands, sum of errors
        self.seeds = np.zeros(n, np.uint64)

    @property
    def physics(self) -> Any:
        return self.env.unwrapped.physics  # type: ignore[attr-defined]

    def next_frame(self) -> np.ndarray:
        """Frames that the next control step is compared with, [n]."""
        return np.minimum(self.clock + ~self.far, len(self.frames.yaw) - 1)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is None or isinstance(seed, (int, np.integer)):
            seed = self.env._seeds(seed)  # type: ignore[attr-defined]
        mask = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, bool)), bool)
        _, infos = self.env.reset(seed=seed, options=options)
        self.seeds[mask] = np.array([int(each) % 2**64 for each in seed], np.uint64)[mask]
        for column in (self.clock, self.far, self.total, self.count):
            column[mask] = 0
        self.far[mask] = self._measure_error(self.clock)[mask] > self.far_m
        return self._observe(), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        played = self.env.unwrapped.live  # type: ignore[attr-defined]
        _, _, terminated, truncated, infos = self.env.step(np.asarray(actions)[:, None])
        sound = played & ~infos["error"]
        self.clock = np.where(sound, self.next_frame(), self.clock)
        error = self._measure_error(self.clock)
        self.far = np.where(sound, error > self.far_m, self.far)
        self.total += np.where(sound, error, 0)
        self.count += sound
        distance = np.linalg.norm(self.physics.objects[:, 0] - self.physics.tip, axis=1)
        reward = compute_tracking_reward(error, distance, self.far_m, self.lost_m)
        rewards = np.where(sound & ~infos["scores"]["dropped"].astype(bool), reward, 0.0)
        infos["scores"] |= self._score(terminated)
        return self._observe(), rewards, terminated, truncated, infos

    def _score(self, terminated: np.ndarray) -> dict[str, np.ndarray]:
        last = np.full(self.num_envs, len(self.frames.yaw) - 1)
        at_end = (self._measure_error(last) <= self.success_m) & ~terminated
        return {"success": at_end.astype(float), "tracking_error_m": self.total / np.maximum(self.count, 1)}

    def _measure_error(self, frame: np.ndarray) -> np.ndarray:
        """Distance of the keypoints from those of a frame each, [n] metres."""
        centre, turn = self.physics.objects[:, 0], self.physics.turns[:, 0]
        return compute_keypoint_error(centre, turn, self.frames.object_m[frame], self.frames.yaw[frame])

    def _observe(self) -> dict[str, np.ndarray]:
        turn, centre = self.physics.turns[:, 0], self.physics.objects[:, 0]
        yaw = np.arctan2(turn[:, 1, 0], turn[:, 0, 0])
        estimate = self.noise.estimate(centre, yaw, self.seeds, self.count)
        return {"state": self._encode(*estimate), "privileged_state": self._encode(centre, yaw)}

    def _encode(self, centre: np.ndarray, yaw: np.ndarray) -> np.ndarray:
        """State vectors [n, D], as `DemonstrationTracking` describes them."""
        tip, setpoint, frame = self.physics.tip, self.physics.setpoint, self.next_frame()
        turn = self.frames.yaw[frame] - yaw
        parts = [
            (tip - _HOME_M) / _UNIT_M,
            (setpoint - tip) / _LAG_M,
            (centre - tip) / _UNIT_M,
            (self.frames.object_m[frame] - centre) / _UNIT_M,
            np.column_stack([np.cos(yaw), np.sin(yaw), np.cos(turn), np.sin(turn)]),
            frame[:, None] / (len(self.frames.yaw) - 1),
        ]
        return np.concatenate(parts, axis=1).astype(np.float32)

    def render(self, i: int = 0, size: int = 256) -> np.ndarray:  # type: ignore[override]
        """Image of environment i, uint8 [H, W, 3]."""
        return self.env.render(i, size)  # type: ignore[call-arg,return-value]

    def state_dict(self) -> dict[str, Any]:
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        arrays["seeds"] = arrays["seeds"].view(np.int64)
        tensors = {name: torch.from_numpy(np.array(value)) for name, value in arrays.items()}
        return {"env": self.env.state_dict(), **tensors}  # type: ignore[attr-defined]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.env.load_state_dict(state["env"])  # type: ignore[attr-defined]
        for name in _ARRAYS:
            setattr(self, name, state[name].numpy().copy())
        self.seeds = self.seeds.view(np.uint64)
