"""Simulator of an arm that follows the object of one human demonstration."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from mmrl.core.errors import check_at_least, check_fraction, check_positive
from mmrl.core.types import Sim
from sims.tabletop.arm import STEP_M
from sims.tracking.demonstration import SCRIPT, Demonstration, HumanDemonstration
from sims.tracking.task import Reset, TrackingScene
from sims.tracking.vector import OBSERVATION_DIMS, PoseNoise, TrackingVectorEnv


@dataclass(frozen=True)
class DemonstrationTracking(Sim):
    """Move a cube as in one human demonstration, paid by how near its keypoints are to the demonstrated ones.

    The demonstration has a clock that a control step moves on; it stands while the cube is farther than `far_m` from
    where it should be. Nothing is drawn. Score "success": after the last control step the keypoints are within
    `success_m` of the last pose; "tracking_error_m": mean over the episode's control steps.

    The observation "privileged_state" [D] has, from the true state: the tip's place, its set-point minus the tip, the
    cube minus the tip, the demonstrated cube minus the cube (0.1 m; the set-point 0.015 m), cosine and sine of the
    cube's yaw and of the turn that is missing, and the clock from 0 to 1. "state" has the same with the errors of a
    pose estimate.

    Source: Lum et al., "Crossing the Human-Robot Embodiment Gap with Sim-to-Real RL using One Human Demonstration",
    2025, arXiv:2504.12609, section 3.

    Args:
        demonstration: whose object is followed.
        reset: where an episode's first posture comes from: "pre_contact", the demonstrated hand before it touches the
            object, or "random", anywhere near the object.
        held_out_reset: the same for held-out initial states; None: as `reset`.
        steps: control steps (20 Hz) of an episode.
        object_m: largest displacement of the cube from its demonstrated start, per axis, metres.
        yaw: largest turn of it, rad.
        joint_noise: largest error of the arm's first posture, rad per joint.
        far_m: distance of the keypoints above which the clock stands and the reward is a tenth, metres.
        lost_m: distance of the fingertips from the cube that ends the episode, metres.
        success_m: see above.
        noise_m: std of the estimated position's error in a control step, per axis, metres.
        noise_rad: std of the estimated yaw's error in a control step.
        episode_noise_m: std of the position's error that an episode keeps.
        episode_noise_rad: std of the yaw's error that an episode keeps.
        injected: probability that an estimate is another pose altogether, uniform within 0.1 m and any yaw.
        threads: that step the environments; 0 takes all CPUs.
    """

    demonstration: HumanDemonstration = SCRIPT
    reset: Reset = "pre_contact"
    held_out_reset: Reset | None = None
    steps: int = 60
    object_m: float = 0.02
    yaw: float = 0.35
    joint_noise: float = 0.035
    far_m: float = 0.2
    lost_m: float = 0.3
    success_m: float = 0.03
    noise_m: float = 0.0
    noise_rad: float = 0.0
    episode_noise_m: float = 0.0
    episode_noise_rad: float = 0.0
    injected: float = 0.0
    threads: int = 0

    name = "tabletop-tracking"

    def __post_init__(self) -> None:
        check_at_least(1, "sim", steps=self.steps)
        check_positive("sim", far_m=self.far_m, success_m=self.success_m)
        check_fraction("sim", injected=self.injected)
        self.noise  # noqa: B018  # refuses negative numbers
        self.scene  # noqa: B018  # refuses unknown resets
        self.frames  # noqa: B018  # reads the demonstration before anything is built

    @cached_property
    def scene(self) -> TrackingScene:
        """The tabletop without the reward."""
        names = ("demonstration", "reset", "held_out_reset", "object_m", "yaw", "joint_noise", "lost_m", "threads")
        return TrackingScene(**{name: getattr(self, name) for name in names}, max_decisions=self.steps)

    @cached_property
    def frames(self) -> Demonstration:
        """The demonstration at the control rate."""
        return self.demonstration.read()

    @cached_property
    def noise(self) -> PoseNoise:
        """Errors of the estimated poses."""
        return PoseNoise(**{field.name: getattr(self, field.name) for field in fields(PoseNoise)})

    def make(self, num_envs: int) -> VectorEnv:
        return TrackingVectorEnv(
            self.scene.make(num_envs), self.frames, self.noise, self.far_m, self.lost_m, self.success_m
        )

    def sizes(self) -> dict[str, Any]:
        box = {"actions": 3, "kind": "gaussian", "low": [-1.0] * 3, "high": [1.0] * 3}
        return {"observation_dims": OBSERVATION_DIMS, "privileged_dims": OBSERVATION_DIMS, **box}

    def contract(self) -> dict[str, Any]:
        frames = np.column_stack([self.frames.object_m, self.frames.yaw, self.frames.hand_m])
        digest = hashlib.blake2b(frames.tobytes(), digest_size=4).hexdigest()
        limits = {name: getattr(self, name) for name in ("far_m", "success_m")}
        scene = {name: value for name, value in self.scene.contract().items() if name != "tasks"}
        return {**scene, **limits, "sim": self.name, "observe": "positions", "demonstration": digest}

    def expert(self, env: VectorEnv) -> np.ndarray:
        """Replay the demonstrated hand open loop: return the next action of every environment, float32 [n, 1, A].

        It does not look at the object, so that it fails where the object stands elsewhere.
        """
        table: Any = env.unwrapped
        frame = np.minimum(table.decisions + 1, len(self.frames.yaw) - 1)
        way = self.frames.hand_m[frame] - table.physics.setpoint
        return np.clip(way / STEP_M, -1, 1).astype(np.float32)[:, None]
