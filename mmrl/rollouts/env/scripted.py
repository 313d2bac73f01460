"""Rollouts in a simulator in which its scripted expert acts, or random actions, in place of the policy."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mmrl.core.episode_limit import check_end
from mmrl.core.rng import derive_rng
from mmrl.core.types import Completion, Context, Episode, Prompt, Sim, Turn
from mmrl.rollouts.base import simulator_of
from mmrl.rollouts.env.episodic import EpisodicRollout

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv


class ScriptedRollout(EpisodicRollout):
    """Base class: play whole episodes as `EpisodicRollout` does, without a policy and without anything to train on.

    Args:
        max_envs: most environments at once; more episodes are played in equal waves.
        max_decisions: of an episode, after which the rollout stops with an error.
    """

    samples = False

    def __init__(self, max_envs: int = 64, max_decisions: int = 50_000):
        super().__init__(max_envs, bootstrap=False, max_decisions=max_decisions)

    @abstractmethod
    def act(self, sim: Sim, env: VectorEnv, rngs: Sequence[np.random.Generator]) -> np.ndarray:
        """Return the actions of all environments; `rngs` has a generator for each."""

    def choose_sim(self, sim: Sim) -> Sim:
        """Return the simulator to play in, from that of the task."""
        return sim

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        sim = self.choose_sim(simulator_of(ctx.task, "a scripted rollout"))
        episodes = [Episode(p, group=slot, sample_index=i) for slot, p in prompts for i in ctx.sample_indices(slot)]
        size = -(-len(episodes) // -(-len(episodes) // self.max_envs)) if episodes else 0
        for start in range(0, len(episodes), max(size, 1)):
            self._play(sim, self._make(sim, size), episodes[start : start + size], ctx)
            ctx.progress("rollout", min(start + size, len(episodes)), len(episodes))
        return episodes

    def _make(self, sim: Sim, count: int) -> VectorEnv:
        if self._env is None or self._made_for != (sim, count):
            self.close()
            self._env, self._made_for = sim.make(count), (sim, count)
        return self._env

    def _play(self, sim: Sim, env: VectorEnv, episodes: list[Episode], ctx: Context) -> None:
        """Play the episodes to their ends; surplus environments repeat the last initial state."""
        surplus = [episodes[-1]] * (env.num_envs - len(episodes))
        key = (ctx.seed, ctx.purpose, ctx.iteration)
        rngs = [derive_rng("scripted", *key, each.group, each.sample_index) for each in [*episodes, *surplus]]
        seeds = [int(each.prompt.info["seed"]) for each in [*episodes, *surplus]]
        observation, _ = env.reset(seed=seeds)  # type: ignore[arg-type]  # one seed per environment
        if isinstance(observation, dict) and "instruction" in observation:
            for episode, sentence in zip(episodes, observation["instruction"]):
                episode.info["instruction"] = str(sentence)
        live, decision = list(range(len(episodes))), 0
        while live:
            _, rewards, terminated, truncated, infos = env.step(self.act(sim, env, rngs))
            for i in live:
                episodes[i].turns.append(Turn(_EMPTY, float(rewards[i])))  # type: ignore[attr-defined]
                if terminated[i] or truncated[i]:
                    _end(episodes[i], i, bool(terminated[i]), infos)
            live, decision = [i for i in live if not (terminated[i] or truncated[i])], decision + 1
            if live:
                check_end(ctx.task.name, decision, len(live), self.max_decisions)


class SimExpert(ScriptedRollout):
    """The simulator's scripted expert plans every control step: the ceiling that its demonstrations set."""

    def choose_sim(self, sim: Sim) -> Sim:
        return sim.stepwise()

    def act(self, sim: Sim, env: VectorEnv, rngs: Sequence[np.random.Generator]) -> np.ndarray:
        if not hasattr(sim, "expert"):
            raise ValueError(f"sim {sim.name!r} has no scripted expert; policy=random needs none")
        return np.asarray(sim.expert(env.unwrapped), env.action_space.dtype).reshape(env.action_space.shape)  # type: ignore


class RandomActions(ScriptedRollout):
    """Every number of every action is drawn uniformly from its bounds: the floor of the scores."""

    def act(self, sim: Sim, env: VectorEnv, rngs: Sequence[np.random.Generator]) -> np.ndarray:
        space: Any = env.single_action_space
        if hasattr(space, "n"):
            return np.array([rng.integers(space.n) for rng in rngs], space.dtype)
        low, high = np.clip(space.low, -1e3, 1e3), np.clip(space.high, -1e3, 1e3)
        return np.stack([rng.uniform(low, high) for rng in rngs]).astype(space.dtype)


_EMPTY = Completion({}, torch.zeros(0).long(), torch.zeros(0), torch.zeros(0).bool(), "")


def _end(episode: Episode, i: int, terminated: bool, infos: Any) -> None:
    """Set how the episode of environment i ended, and its scores."""
    failed = "error" in infos and bool(infos["error"][i])
    episode.ended = "error" if failed else "done" if terminated else "time"
    episode.info["scores"] = {n: float(c[i]) for n, c in infos.get("scores", {}).items() if not n.startswith("_")}
    episode.info["decisions"] = len(episode.turns)
    if "task" in infos:
        episode.info["task"] = str(infos["task"][i])
