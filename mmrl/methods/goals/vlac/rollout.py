"""VLAC: rollouts whose rewards and ends come from a frozen critic of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from mmrl.core.errors import ConfigError, check_fraction
from mmrl.core.types import Context, Episode, Prompt, Sim
from mmrl.methods.goals.vlac.critic import ProgressCritic
from mmrl.rollouts.base import simulator_of
from mmrl.rollouts.env.autoreset import AutoresetAdapter
from mmrl.rollouts.env.fixed_horizon import FixedHorizon


class CriticRollout(FixedHorizon):
    """VLAC: `FixedHorizon` in which a frozen critic gives the rewards and ends episodes; the simulator's are not read.

    The reward of a decision is scale * c, the share c of the remaining way between the images before and after it. An
    episode terminates where the critic says that the task is done. Held-out episodes are the simulator's own.
    Source: arXiv:2509.15937, sections 3 and 4.

    Args:
        critic: name of the critic in `model.frozen_models`, a policy that `start=progress_critic` trains.
        scale: factor of the reward.
        dead_zone: shares of at most this size count as none.
        both_orders: the share is half the difference of those in both orders, so that nothing is earned by standing.
        done_threshold: probability above which an episode ends; None: the critic ends none.
        options: of `FixedHorizon`.
    """

    def __init__(
        self,
        critic: str = "critic",
        scale: float = 1.0,
        dead_zone: float = 0.0,
        both_orders: bool = True,
        done_threshold: float | None = 0.7,
        **options: Any,
    ):
        super().__init__(**options)
        if done_threshold is not None:
            check_fraction("rollout", done_threshold=done_threshold)
        self.critic, self.done_threshold = critic, done_threshold
        self.options = {"scale": scale, "dead_zone": dead_zone, "both_orders": both_orders}
        self._counts = CriticCounts()

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        self._counts.reset()
        return super().collect(prompts, ctx)

    def metrics(self) -> dict[str, float]:
        """Those of `FixedHorizon`, and of the last collection `CriticCounts`; of this process."""
        return {**super().metrics(), **self._counts.metrics()}

    def _open(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> AutoresetAdapter:
        if self._env is None:
            if self.critic not in ctx.models:
                raise ConfigError(
                    f"rollout.critic={self.critic!r} is no model of the run; name a policy on pairs of images under "
                    f"model.frozen_models.{self.critic}, as recipe=vlac does"
                )
            model = ProgressCritic(ctx.models[self.critic], **self.options)  # type: ignore[arg-type]
            sim = CriticSim(simulator_of(ctx.task, "rollout of VLAC"), model, self.done_threshold, self._counts)
            ctx = replace(ctx, task=replace(ctx.task, sim=sim))  # type: ignore[type-var,call-arg]
        return super()._open(prompts, ctx)


class CriticCounts:
    """What the critic said in a collection, beside what the simulator reports.

    Metrics: `rollout/critic/reward`, mean reward of a decision; `rollout/critic/ends`, episodes that the critic ended;
    `rollout/critic/right_ends`, the share of these with a success of the simulator.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.rewards: list[float] = []
        self.ends: list[float] = []

    def metrics(self) -> dict[str, float]:
        out = {"rollout/critic/ends": float(len(self.ends))}
        if self.rewards:
            out["rollout/critic/reward"] = float(np.mean(self.rewards))
        return out | ({"rollout/critic/right_ends": float(np.mean(self.ends))} if self.ends else {})


@dataclass(frozen=True)
class CriticSim(Sim):
    """The simulator with the critic's rewards and ends.

    Args:
        sim: its observations hold "image" and "instruction".
        critic: of every decision.
        done_threshold: probability above which an episode ends; None: the critic ends none.
        counts: what the critic said is noted there.
    """

    sim: Sim
    critic: ProgressCritic
    done_threshold: float | None
    counts: CriticCounts

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.sim.name

    def make(self, num_envs: int) -> VectorEnv:
        return CriticVectorEnv(self.sim.make(num_envs), self)

    def task_of(self, seed: int) -> str:
        return self.sim.task_of(seed)

    def sizes(self) -> dict[str, Any]:
        return self.sim.sizes()

    def contract(self) -> dict[str, Any]:
        return self.sim.contract()


class CriticVectorEnv(VectorWrapper):
    """Vector environment of `CriticSim`; an environment that the critic ended keeps its end until its reset."""

    def __init__(self, env: VectorEnv, sim: CriticSim):
        super().__init__(env)
        if env.metadata.get("autoreset_mode") is not AutoresetMode.DISABLED:
            raise ValueError(f"{env}: the critic needs the image after the last decision; set sim.autoreset=disabled")
        if not {"image", "instruction"} <= set(getattr(env.single_observation_space, "spaces", ())):
            raise ValueError(f"{env} has no 'image' and 'instruction' in its observations for the critic")
        if hasattr(env, "draws_ends"):
            env.draws_ends = True
        self.sim = sim
        self._image: Any = None
        self._over = np.zeros(env.num_envs, bool)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        mask = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, bool)), bool)
        self._image, self._over = observation["image"], self._over & ~mask
        return observation, info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observation, _, terminated, truncated, info = self.env.step(actions)
        failed = np.asarray(info.get("error", np.zeros(self.num_envs)), object).astype(bool)
        rows = np.flatnonzero(~self._over & ~failed)
        rewards, ends = np.zeros(self.num_envs), np.zeros(self.num_envs, bool)
        if rows.size:
            instructions, images = [str(observation["instruction"][i]) for i in rows], observation["image"][rows]
            rewards[rows] = self.sim.critic(self._image[rows], images, instructions)
            if self.sim.done_threshold is not None:
                ends[rows] = self.sim.critic.predict_done(images, instructions) > self.sim.done_threshold
            self._note(rewards[rows], ends, info)
        terminated = terminated | ends
        self._image, self._over = observation["image"], self._over | terminated | truncated
        return observation, rewards, terminated, truncated & ~ends, info

    def _note(self, rewards: np.ndarray, ends: np.ndarray, info: dict[str, Any]) -> None:
        self.sim.counts.rewards += rewards.tolist()
        success = info.get("scores", {}).get("success")
        if success is not None:
            self.sim.counts.ends += np.asarray(success, float)[ends].tolist()

    def state_dict(self) -> dict[str, Any]:
        """The simulator's, and the images before the next decision."""
        tensors = {"image": torch.from_numpy(np.array(self._image)), "over": torch.from_numpy(self._over.copy())}
        return {"env": self.env.state_dict(), **tensors}  # type: ignore[attr-defined]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.env.load_state_dict(state["env"])  # type: ignore[attr-defined]
        self._image, self._over = state["image"].numpy().copy(), state["over"].numpy().copy()
